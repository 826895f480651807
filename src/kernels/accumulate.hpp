#pragma once

// Sums of gradients over micro-batches. Owns one kernel; who adds what to what, and in which order, is the caller's.

#include "core/views.hpp"

namespace trainstone {

/// to = or += from, element by element.                       reference: reference::accumulate
/// \param[in]  exec      work is enqueued here; returns without fencing
/// \param[in]  from (n)  \param[in,out] to (n)   overwritten or added to, as `write` says; must not overlap from
/// \throws Error         if extents differ (message names both shapes)
/// Work: n FLOP if it adds; 8 n bytes, 4 n more if it adds.
void accumulate(ExecutionSpace const& exec, Write write, Vector<float const> from, Vector<float> to);

} // namespace trainstone
