#pragma once

#include "core/views.hpp"

namespace trainstone::Impl {

/// A policy for a body of 512 bytes to 4 KB, such as one with a table: on CUDA it becomes an argument of the kernel.
/// Without this, Kokkos writes it to constant memory, and lets the host wait until the last kernel that reads such a
/// body there has ended. On hosts there is nothing to do, and Kokkos 4.5 would forget the instance.
template <class Policy>
auto for_large_body(Policy const& policy) {
  if constexpr (host_reaches_memory)
    return policy;
  else
    return Kokkos::Experimental::require(policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight);
}

} // namespace trainstone::Impl
