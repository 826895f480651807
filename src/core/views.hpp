#pragma once

// The execution space, its memory, what the host has to do with that, and the three view types that every layer passes
// around: unmanaged, LayoutRight windows into memory that an Allocation owns. The last index is contiguous and is the
// vector range.

#include "core/index.hpp"

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace trainstone {

// nvcc from CUDA 12.9 on places members behind a [[no_unique_address]] one differently for host and device: kernels
// would read other addresses than those that they are given. (kokkos/mdspan, pull requests 434 and 435; Kokkos 5.0 has
// them.)
#if defined(__CUDACC__) && defined(MDSPAN_IMPL_USE_ATTRIBUTE_NO_UNIQUE_ADDRESS) &&                                     \
    !defined(KOKKOS_ENABLE_IMPL_VIEW_LEGACY) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1209
#error                                                                                                                 \
    "Views of this Kokkos and this CUDA differ between host and device: use Kokkos 5.0, or build Kokkos with -DKokkos_ENABLE_IMPL_VIEW_LEGACY=ON"
#endif

using ExecutionSpace = Kokkos::DefaultExecutionSpace;
using MemorySpace = ExecutionSpace::memory_space;

/// Whether kernels' memory is the host's, so that the host may look at it.
inline constexpr bool host_reaches_memory = Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible;

/// Host memory that kernels' memory is copied to and from without waiting, and that MPI can be given.
#ifdef KOKKOS_HAS_SHARED_HOST_PINNED_SPACE
using PinnedSpace = Kokkos::SharedHostPinnedSpace;
#else
using PinnedSpace = Kokkos::HostSpace;
#endif

template <class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class T>
using Tensor4 = Kokkos::View<T****, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

} // namespace trainstone
