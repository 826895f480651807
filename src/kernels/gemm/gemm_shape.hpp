#pragma once

// The matrix product as a value: extents and types, who computes it (the providers), and what it takes: operations,
// bytes, scratch, kernels. Plans predict from these values, and a Gemm (kernels/gemm/gemm.hpp) computes with them.
// Promises: a Gemm takes exactly the scratch and the kernels that are said here. Without Kokkos, so that plans are read
// cheaply. Computes no product, does not choose by timing.

#include "core/index.hpp"
#include "core/storage.hpp"
#include "core/write.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// Who computes matrix products; named as gemm_provider_names in kernels/common/config.hpp, in this order. `automatic`
/// takes the first built one of: cublaslt, onednn, kokkos_kernels, kokkos. cublaslt_tf32 rounds fp32 to 10 bits of the
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

/// How a product is computed: by whom, and by which of the provider's variants of it. They have the same scratch and
/// the same kernels, and differ in time and in the order of sums. Variant 0 is what the provider itself prefers.
struct GemmMethod {
  GemmProvider provider = GemmProvider::automatic;
  int variant = 0;

  /// Not explicit, because a provider is the simplest method.
  GemmMethod(GemmProvider by, int its_variant = 0) : provider(by), variant(its_variant) {}
  auto operator<=>(GemmMethod const&) const = default;
};

/// "cublaslt", and of its variant 3 "cublaslt#3".
std::string to_string(GemmMethod const& method);
/// The method of that name. Throws InputError if there is no such provider, or no number behind the #.
GemmMethod parse_gemm_method(std::string_view name);

/// The method of each product: one provider for all products, and other methods for some shapes. A plain value.
/// Scratch and kernels are predicted from it, and a Gemm computes with it.
class GemmChoice {
public:
  /// One provider for all products. Not explicit, because a provider is the simplest choice.
  GemmChoice(GemmProvider provider) : m_usual(resolve_gemm_provider(provider)) {}
  /// \param[in] others  by shape with its epilogue
  /// \throws InputError  if the provider of one of them is not built
  GemmChoice(GemmProvider usual, std::map<GemmShape, GemmMethod> const& others);

  /// The provider for shapes that are not named. Like the providers below, it is never `automatic`.
  GemmProvider usual() const { return m_usual; }
  GemmMethod operator()(GemmShape const& shape) const;
  /// All providers that may compute, the usual one first.
  std::vector<GemmProvider> providers() const;

private:
  GemmProvider m_usual;
  std::map<GemmShape, GemmMethod> m_others;
};

/// describe_gemm of all providers of a choice: "onednn bf16, blas bf16 as fp32".
std::string describe_gemm(GemmChoice const& choice, Storage inputs);

/// The shape as a name that tells all: "C (7, 5) fp32 += A^T (7, 3) B (3, 5) fp32", and "with bias" behind it.
std::string to_string(GemmShape const& shape);

/// The scratch in bytes that `provider` (resolved first) takes for `shape`: of fp32 0 but for oneDNN and cuBLASLt.
/// Depends on the CPU and on the number of OpenMP threads at the time of the call, as the execution does. One scratch
/// of the maximum serves all shapes.
std::uint64_t gemm_scratch_bytes(GemmProvider provider, GemmShape const& shape);

/// How many variants `provider` (resolved first) has of `shape`, at least 1. Depends on the version of its library and
/// on the device.
int gemm_variants(GemmProvider provider, GemmShape const& shape);

/// The built providers, with the versions of libraries that may change under the program: "cublaslt=130100 kokkos".
std::string gemm_versions();

/// The kernels that a product of `shape` by `provider` (resolved first) takes: 1, one per matrix that is converted to
/// fp32 or back, and one for an epilogue that the provider leaves to others. 0 if C is empty.
int gemm_launches(GemmProvider provider, GemmShape const& shape);

} // namespace trainstone
