#pragma once

// Matrix product. Owns the one contract behind which libraries compute it (the providers, chosen at run time), and the
// object that holds their cached primitives. Promises: sums in fp32, rounded once to the type of C, or twice
// where that is said of the provider (rounds_before_adding); inputs are rounded to a narrower type by a provider whose
// name says so alone; the same bits whenever the same call is repeated
// with the same number of threads; no memory of its own beyond a few kB of descriptors: libraries work in the scratch
// that the caller gives, whose size is predicted exactly. Does not choose by timing, does not keep weights between
// calls.

#include "core/stored.hpp"
#include "core/views.hpp"
#include "kernels/gemm/gemm_shape.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace trainstone {

/// The epilogue of a call: its kind (gemm_shape.hpp) and the vectors and matrices that it works on.
struct Epilogue {
  EpilogueKind kind = EpilogueKind::none;
  ConstStoredVector bias = {};     ///< (n), stored as A is
  StoredMatrix pre = {};           ///< (m, n), stored as C is; written by bias_gelu, read by gelu_gradient
  StoredVector bias_gradient = {}; ///< (m), stored as C is

  static Epilogue add_bias(ConstStoredVector bias) { return {.kind = EpilogueKind::bias, .bias = bias}; }
  static Epilogue gelu(ConstStoredVector bias, StoredMatrix pre) {
    return {.kind = EpilogueKind::bias_gelu, .bias = bias, .pre = pre};
  }
  static Epilogue gelu_gradient(StoredMatrix pre) { return {.kind = EpilogueKind::gelu_gradient, .pre = pre}; }
  static Epilogue gradient_of_bias(StoredVector gradient) {
    return {.kind = EpilogueKind::bias_gradient, .bias_gradient = gradient};
  }
};

namespace Impl {
/// Computes one product whose extents are all positive. Owns what the provider keeps between calls.
using GemmFunction = std::function<void(ExecutionSpace const&, GemmShape const&, int variant, void const* a,
                                        void const* b, void* c, Epilogue const&, Vector<std::byte> scratch)>;
using GemmFunctions = std::map<GemmProvider, GemmFunction>;
} // namespace Impl

/// Providers with what they keep between calls. Calls on one object must not overlap: they share the scratch.
class Gemm {
public:
  /// \param[in] choice     who computes which product
  /// \param[in] scratch    used by every call; must outlive the object, and its content is lost at each call
  explicit Gemm(GemmChoice choice, Vector<std::byte> scratch = {});
  /// The same with functions of the caller's for all providers of the choice: tests see what each is asked for.
  Gemm(GemmChoice choice, Vector<std::byte> scratch, Impl::GemmFunctions functions);

  GemmChoice const& choice() const { return m_choice; }

  /// C = or += op(A) op(B), with op(X) = X or its transpose.                       reference: reference::gemm
  /// \param[in]  exec     work is enqueued here; returns without fencing. Complete on return if `exec` runs on the host
  /// \param[in]  a        (m, k), or (k, m) if `transpose_a`      \param[in] b  (k, n), or (n, k) if `transpose_b`
  /// \param[out] c        (m, n) overwritten or added to as `mode` says; must not overlap a or b. If k is 0 the product
  ///                      is 0. Stored as a and b are, or in fp32
  /// \param[in]  epilogue what else is done; bias_gradient goes with a transposed A, and honours mode, the others go
  ///                      with Write::overwrite
  /// \throws Error        if extents or types do not fit together (the message names all three) or the scratch is
  ///                      smaller than gemm_scratch_bytes of the shape
  /// Work: shape.flops() and shape.bytes(), and that of the epilogue's kernels. Sums in fp32, in an order that depends
  /// on the provider, and one rounding to c's type, or two (rounds_before_adding); before these
  /// |error| <= k eps |op(A)| |op(B)|. Processors' own bf16 instructions take subnormal numbers as 0. Label:
  /// trainstone::gemm[cuBLASLt], trainstone::gemm[oneDNN], trainstone::gemm[BLAS], trainstone::gemm[KokkosBlas] or
  /// trainstone::gemm.
  void operator()(ExecutionSpace const& exec, Transpose transpose_a, ConstStoredMatrix a, Transpose transpose_b,
                  ConstStoredMatrix b, StoredMatrix c, Write mode, Epilogue const& epilogue = {});

private:
  void compute(ExecutionSpace const& exec, GemmMethod method, GemmShape const& shape, ConstStoredMatrix a,
               ConstStoredMatrix b, StoredMatrix c, Epilogue const& epilogue);

  GemmChoice m_choice;
  Vector<std::byte> m_scratch;
  Impl::GemmFunctions m_functions;
  /// Asked once: providers plan the product for it.
  std::map<std::pair<GemmProvider, GemmShape>, std::uint64_t> m_scratch_bytes;
};

} // namespace trainstone
