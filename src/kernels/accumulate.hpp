#pragma once

// Sums of vectors. The caller decides about operands and, of accumulate(), about the order.

#include "core/stored.hpp"
#include "core/views.hpp"
#include "core/write.hpp"

namespace trainstone {

/// to = or += from, element by element, added in fp32 and rounded once.   reference: reference::accumulate
/// \param[in]  exec      work is enqueued here; returns without fencing
/// \param[in]  from (n)  stored as `to` is
/// \param[in,out] to (n) overwritten or added to, as `write` says; must not overlap from
/// \throws Error         if extents (message names both shapes) or types differ
/// Work: n FLOP if it adds; 2 n values read or written, n more if it adds.
void accumulate(ExecutionSpace const& exec, Write write, ConstStoredVector from, StoredVector to);

/// The first part of `parts` becomes the sum of all, in the balanced binary tree over them.       reference: itself
/// \param[in]     exec            work is enqueued here; returns without fencing
/// \param[in,out] parts (k, n)    at most 2^16 parts, of float or double
/// \throws Error                  if there are more parts
/// Work: k n FLOP; k n sizeof(T) bytes.
template <class T>
void add_parts(ExecutionSpace const& exec, Matrix<T> parts);

} // namespace trainstone
