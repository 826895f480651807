// A BLAS' sgemm on the host, by its Fortran interface, which every BLAS has. It multiplies on the threads of its own
// that it is built with: those of OpenMP are as many as library_threads says, and the ones that kernels run on. Buffers
// in which it packs matrices are its own.

#include "kernels/gemm/gemm_impl.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"

#include <algorithm>
#include <limits>

extern "C" void sgemm_(char const* transpose_a, char const* transpose_b, int const* m, int const* n, int const* k,
                       float const* alpha, float const* a, int const* a_leading, float const* b, int const* b_leading,
                       float const* beta, float* c, int const* c_leading);

namespace trainstone::Impl {

namespace {

static_assert(host_reaches_memory, "this provider computes on the host");

/// C^T = op(B)^T op(A)^T: what lies in rows here are columns to a BLAS.
void compute(ExecutionSpace const& exec, GemmShape const& shape, int, void const* a, void const* b, void* c,
             Epilogue const&, Vector<std::byte>) {
  TRAINSTONE_REQUIRE(std::max({shape.m, shape.n, shape.k}) <= std::numeric_limits<int>::max(),
                     "a BLAS takes 32-bit extents; {} has larger ones", to_string(shape));
  int const m = static_cast<int>(shape.m), n = static_cast<int>(shape.n), k = static_cast<int>(shape.k);
  bool const swap_a = shape.a == Transpose::yes, swap_b = shape.b == Transpose::yes;
  int const a_leading = swap_a ? m : k, b_leading = swap_b ? k : n;
  float const one = 1.0F, beta = shape.mode == Write::add ? 1.0F : 0.0F;
  launch_external({"trainstone::gemm[BLAS]", Phase::gemm, shape.flops(), shape.bytes()}, exec, [&] {
    sgemm_(swap_b ? "T" : "N", swap_a ? "T" : "N", &n, &m, &k, &one, static_cast<float const*>(b), &b_leading,
           static_cast<float const*>(a), &a_leading, &beta, static_cast<float*>(c), &n);
  });
}

} // namespace

GemmFunction make_blas_gemm() { return compute; }

} // namespace trainstone::Impl
