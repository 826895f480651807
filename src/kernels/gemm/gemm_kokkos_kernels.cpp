// Kokkos Kernels' gemm: the BLAS that it was built with on the host (threads as OMP_NUM_THREADS says), cuBLAS on
// CUDA, or its own kernel where it has neither. Small A^T B are left to the plain Kokkos product on devices.

#include "kernels/gemm/gemm_impl.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"

#include <KokkosBlas3_gemm.hpp>

#include <algorithm>
#include <limits>

namespace trainstone::Impl {

namespace {

Matrix<float const> stored(void const* data, Index rows, Index columns, Transpose transpose) {
  if (transpose == Transpose::yes) std::swap(rows, columns);
  return Matrix<float const>(static_cast<float const*>(data), static_cast<std::size_t>(rows),
                             static_cast<std::size_t>(columns));
}

/// Whether Kokkos Kernels adds up a C so small with atomics, which may give other bits in every run (seen in 4.5, 4.7).
bool has_atomic_sums(GemmShape const& shape) {
  return !host_reaches_memory && shape.a == Transpose::yes && shape.b == Transpose::no && shape.m * shape.n < 100;
}

void compute(ExecutionSpace const& exec, GemmShape const& shape, int, void const* a, void const* b, void* c,
             Epilogue const&, Vector<std::byte>) {
  TRAINSTONE_REQUIRE(std::max({shape.m, shape.n, shape.k}) <= std::numeric_limits<int>::max(),
                     "KokkosBlas::gemm hands 32-bit extents to the BLAS; {} has larger ones", to_string(shape));
  if (has_atomic_sums(shape)) return kokkos_gemm(exec, shape, a, b, c);
  Matrix<float> const out(static_cast<float*>(c), static_cast<std::size_t>(shape.m), static_cast<std::size_t>(shape.n));
  auto const flag = [](Transpose transpose) { return transpose == Transpose::yes ? "T" : "N"; };
  launch_external({"trainstone::gemm[KokkosBlas]", Phase::gemm, shape.flops(), shape.bytes()}, exec, [&] {
    KokkosBlas::gemm(exec, flag(shape.a), flag(shape.b), 1.0f, stored(a, shape.m, shape.k, shape.a),
                     stored(b, shape.k, shape.n, shape.b), shape.mode == Write::add ? 1.0f : 0.0f, out);
  });
}

} // namespace

GemmFunction make_kokkos_kernels_gemm() { return compute; }

} // namespace trainstone::Impl
