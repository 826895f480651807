#pragma once

// Sums of gradients over micro-batches. Owns one kernel. The caller decides about operands and order.

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

} // namespace trainstone
