#pragma once

// Conversion between storage types: float to and from bf16 and fp16, element by element.

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

} // namespace trainstone
