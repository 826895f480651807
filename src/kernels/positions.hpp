#pragma once

// Ranks that share the positions of every sample: a rank's rows, and where they lie among all rows. Row b T + t of all
// rows is position t of sample b, of samples of T positions. A rank has the rows of P positions from `first` on: its
// row b P + i is position first + i of sample b.

#include "core/views.hpp"

namespace trainstone {

/// own = the rank's rows of `all`, rounded to T.             reference: itself
/// \param[in]  exec   work is enqueued here; returns without fencing
/// \param[in]  all (B T, C)   \param[in] samples B   \param[in] first  position
/// \param[out] own (B P, C)   overwritten
/// \throws Error      if extents differ (message names both shapes), or positions are not among those of a sample
/// Work: B P C (sizeof(From) + sizeof(T)) bytes.
template <class From, class T>
void take_positions(ExecutionSpace const& exec, Matrix<From const> all, Index samples, Index first, Matrix<T> own);

/// The rank's rows of `all` = own; the others stay.          reference: itself
/// \param[in]     exec   work is enqueued here; returns without fencing
/// \param[in]     own (B P, C)   \param[in] samples B   \param[in] first  position
/// \param[in,out] all (B T, C)
/// \throws Error         if extents differ (message names both shapes), or positions are not among those of a sample
/// Work: 2 B P C sizeof(T) bytes.
template <class T>
void place_positions(ExecutionSpace const& exec, Matrix<T const> own, Index samples, Index first, Matrix<T> all);

} // namespace trainstone
