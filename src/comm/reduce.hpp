#pragma once

// The two kernels of the executor: what a schedule's reduces and copies do.

#include "comm/element.hpp"
#include "core/views.hpp"

namespace trainstone {

/// to = to + from (or the larger, the smaller of the two), element by element.
/// \param[in]     exec work is enqueued here; returns without fencing
/// \param[in]     from (n)    \param[in,out] to (n), must not overlap from
/// Integer sums wrap around. A NaN on either side of max or min stays a NaN.
/// Work: n FLOP; 3 n sizeof(T) bytes.
template <class T>
void reduce(ExecutionSpace const& exec, Operation operation, Vector<T const> from, Vector<T> to);

/// to = from. \param[in] exec work is enqueued here; returns without fencing    Work: 0 FLOP; 2 n sizeof(T) bytes.
template <class T>
void copy(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to);

} // namespace trainstone
