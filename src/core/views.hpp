#pragma once

// The execution space, its memory, and the three view types that every layer passes around: unmanaged, LayoutRight
// windows into memory that an Allocation owns. The last index is contiguous and is the vector range.

#include "core/index.hpp"

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace trainstone {

using ExecutionSpace = Kokkos::DefaultExecutionSpace;
using MemorySpace = ExecutionSpace::memory_space;

template <class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class T>
using Tensor4 = Kokkos::View<T****, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Whether a function replaces its output or adds to it; each docstring says for which outputs it is honoured.
enum class Write { overwrite, add };

} // namespace trainstone
