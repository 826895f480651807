#pragma once

// Named regions for Kokkos Tools and profilers: "trainstone::area". RAII only, never push/pop by hand.

#include <Kokkos_Profiling_ScopedRegion.hpp>

namespace trainstone {

using ScopedRegion = Kokkos::Profiling::ScopedRegion;

} // namespace trainstone
