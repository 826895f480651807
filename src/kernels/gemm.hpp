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

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// Who computes matrix products; named as gemm_provider_names in kernels/config.hpp, in this order. `automatic` takes
/// the first built one of: cublaslt, onednn, kokkos_kernels, kokkos. cublaslt_tf32 rounds fp32 to 10 bits of the
/// mantissa before it multiplies, and is only taken by name.
enum class GemmProvider { automatic, kokkos_kernels, onednn, kokkos, cublaslt, cublaslt_tf32, blas };

std::string_view to_string(GemmProvider provider);

/// Whether the provider rounds fp32 matrices before it multiplies them.
constexpr bool rounds_fp32(GemmProvider provider) { return provider == GemmProvider::cublaslt_tf32; }

/// Whether the provider rounds a product to a C of 16 bits before it adds it to what C holds, and then rounds the sum.
/// The others add in fp32, and round the sum alone.
constexpr bool rounds_before_adding(GemmProvider provider) {
  return provider == GemmProvider::cublaslt || provider == GemmProvider::cublaslt_tf32;
}

/// The provider of that name. Throws InputError that lists the names.
GemmProvider parse_gemm_provider(std::string_view name);

/// The providers of this build, in the order of `automatic`. `kokkos` is always there.
std::span<GemmProvider const> built_gemm_providers();

/// The provider that will compute: `automatic` becomes the first built one. Throws InputError if `provider` is not
/// built; the message lists those that are.
GemmProvider resolve_gemm_provider(GemmProvider provider);

/// How `provider` (resolved first) computes with such inputs on this CPU, for the run's output: "onednn", "onednn
/// bf16", "blas fp16 as fp32" where inputs are converted because the provider has no such products for the CPU.
std::string describe_gemm(GemmProvider provider, Storage inputs);

enum class Transpose { no, yes };

/// The epilogue of a product. The provider computes it before it stores C, if it can. Otherwise kernels (bias_gelu.hpp)
/// compute it before or after the product, with the same result up to rounding.
enum class EpilogueKind {
  none,
  bias,          ///< C += bias, per row
  bias_gelu,     ///< pre = the product + bias; C = gelu(pre)
  gelu_gradient, ///< C *= gelu'(pre)
  bias_gradient, ///< bias_gradient = or += the sums of op(A)'s rows: C is a weight's gradient, A that of its outputs
};

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

/// C (m, n) = or += op(A) (m, k) times op(B) (k, n). A is stored (m, k), or (k, m) if transposed; B (k, n), or (n, k).
struct GemmShape {
  Index m = 0, n = 0, k = 0;
  Transpose a = Transpose::no, b = Transpose::no;
  Write mode = Write::overwrite;
  Storage inputs = Storage::fp32; ///< of A and B
  Storage output = Storage::fp32; ///< of C: as the inputs, or fp32
  EpilogueKind epilogue = EpilogueKind::none;

  auto operator<=>(GemmShape const&) const = default;

  /// 2 m n k: of the product alone.
  std::uint64_t flops() const;
  /// (m k + k n) of the inputs' size and m n of the output's, twice that when it adds to C. Of the product alone.
  std::uint64_t bytes() const;
};

/// The provider of each product: one provider for all products, and other providers for some shapes. A plain value.
/// Scratch and kernels are predicted from it, and a Gemm computes with it.
class GemmChoice {
public:
  /// One provider for all products. Not explicit, because a provider is the simplest choice.
  GemmChoice(GemmProvider provider) : m_usual(resolve_gemm_provider(provider)) {}
  /// \param[in] others  by shape, whose epilogue is not looked at
  /// \throws InputError  if one of them is not built
  GemmChoice(GemmProvider usual, std::map<GemmShape, GemmProvider> const& others);

  /// The provider for shapes that are not named. Like the providers below, it is never `automatic`.
  GemmProvider usual() const { return m_usual; }
  GemmProvider operator()(GemmShape shape) const;
  /// All providers that may compute, the usual one first.
  std::vector<GemmProvider> providers() const;

private:
  GemmProvider m_usual;
  std::map<GemmShape, GemmProvider> m_others;
};

/// describe_gemm of all providers of a choice: "onednn bf16, blas bf16 as fp32".
std::string describe_gemm(GemmChoice const& choice, Storage inputs);

/// The shape as a name that tells all but its epilogue: "C (7, 5) fp32 += A^T (7, 3) B (3, 5) fp32".
std::string to_string(GemmShape const& shape);

/// The scratch in bytes that `provider` (resolved first) takes for `shape`: of fp32 0 but for oneDNN and cuBLASLt.
/// Depends on the CPU and on the number of OpenMP threads at the time of the call, as the execution does. One scratch
/// of the maximum serves all shapes.
std::uint64_t gemm_scratch_bytes(GemmProvider provider, GemmShape const& shape);

/// The kernels that a product of `shape` by `provider` (resolved first) takes: 1, one per matrix that is converted to
/// fp32 or back, and one for an epilogue that the provider leaves to others. 0 if C is empty.
int gemm_launches(GemmProvider provider, GemmShape const& shape);

namespace Impl {
/// Computes one product whose extents are all positive. Owns what the provider keeps between calls.
using GemmFunction = std::function<void(ExecutionSpace const&, GemmShape const&, void const* a, void const* b, void* c,
                                        Epilogue const&, Vector<std::byte> scratch)>;
} // namespace Impl

/// Providers with what they keep between calls. Calls on one object must not overlap: they share the scratch.
class Gemm {
public:
  /// \param[in] choice     who computes which product
  /// \param[in] scratch    used by every call; must outlive the object, and its content is lost at each call
  explicit Gemm(GemmChoice choice, Vector<std::byte> scratch = {});

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
  void compute(ExecutionSpace const& exec, GemmProvider provider, GemmShape const& shape, ConstStoredMatrix a,
               ConstStoredMatrix b, StoredMatrix c, Epilogue const& epilogue);

  GemmChoice m_choice;
  Vector<std::byte> m_scratch;
  std::map<GemmProvider, Impl::GemmFunction> m_functions;
  std::map<GemmShape, std::uint64_t> m_scratch_bytes; ///< asked once: providers plan the product for it
};

} // namespace trainstone
