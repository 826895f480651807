#pragma once

// Conversion between storage types, and rounding to one, element by element.

#include "core/stored.hpp"
#include "core/types.hpp"
#include "core/views.hpp"

namespace trainstone {

/// to = from, rounded to nearest, ties to even; NaN stays NaN.      reference: trainstone::from_float, element by
/// element
/// \param[in]  exec      work is enqueued here; returns without fencing
/// \param[in]  from (n)  \param[out] to (n)   overwritten
/// \throws Error         if extents differ (message names both shapes)
/// Work: 0 FLOP; n (sizeof(From) + sizeof(To)) bytes.
template <class From, class To>
void cast(ExecutionSpace const& exec, Vector<From const> from, Vector<To> to);
/// The same between types that are known at run time; between equal ones a copy.
void cast(ExecutionSpace const& exec, ConstStoredVector from, StoredVector to);

/// values = values, as `storage` would keep them: rounded to nearest, ties to even.      reference: to_float of
/// from_float, element by element
/// \param[in]     exec        work is enqueued here; returns without fencing
/// \param[in,out] values (n)
/// Work: 0 FLOP; 8 n bytes. Nothing for fp32.
void round_to(ExecutionSpace const& exec, Storage storage, Vector<float> values);

} // namespace trainstone
