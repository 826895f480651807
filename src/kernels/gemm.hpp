#pragma once

// Matrix product. Owns the one contract behind which libraries compute it (the provider, chosen at run time), and the
// object that holds a provider's cached primitives. Promises: fp32 throughout, never a silent down-conversion; the same
// bits whenever the same call is repeated with the same number of threads; no memory of its own beyond a few kB of
// descriptors: libraries work in the scratch that the caller gives, whose size is predicted exactly. Does not choose by
// timing, does not repack or keep weights between calls.

#include "core/views.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace trainstone {

/// Who computes matrix products; named as gemm_provider_names in kernels/config.hpp, in this order. `automatic` takes
/// the first built one of: onednn, kokkos_kernels, kokkos.
enum class GemmProvider { automatic, kokkos_kernels, onednn, kokkos };

std::string_view to_string(GemmProvider provider);

/// The provider of that name. Throws InputError that lists the names.
GemmProvider parse_gemm_provider(std::string_view name);

/// What this build has, best first; `kokkos` is always there.
std::span<GemmProvider const> built_gemm_providers();

/// The provider that will compute: `automatic` becomes the first built one. Throws InputError, which lists the built
/// ones, if `provider` is not among them.
GemmProvider resolve_gemm_provider(GemmProvider provider);

enum class Transpose { no, yes };

/// C (m, n) = or += op(A) (m, k) times op(B) (k, n). A is stored (m, k), or (k, m) if transposed; B (k, n), or (n, k).
struct GemmShape {
  Index m = 0, n = 0, k = 0;
  Transpose a = Transpose::no, b = Transpose::no;
  Write mode = Write::overwrite;

  auto operator<=>(GemmShape const&) const = default;

  /// 2 m n k
  std::uint64_t flops() const;
  /// (m k + k n + m n) * 4; another m n * 4 when it adds to C.
  std::uint64_t bytes() const;
};

/// The scratch in bytes that `provider` (resolved first) takes for `shape`: 0 but for oneDNN. Depends on the number of
/// OpenMP threads at the time of the call, as the execution does. One scratch of the maximum serves all shapes.
std::uint64_t gemm_scratch_bytes(GemmProvider provider, GemmShape const& shape);

namespace Impl {
/// Computes one product whose extents are all positive. Owns what the provider keeps between calls.
using GemmFunction = std::function<void(ExecutionSpace const&, GemmShape const&, float const* a, float const* b,
                                        float* c, Vector<std::byte> scratch)>;
} // namespace Impl

/// A provider with what it keeps between calls. Calls on one object must not overlap: they share the scratch.
class Gemm {
public:
  /// \param[in] provider   resolved as resolve_gemm_provider does
  /// \param[in] scratch    used by every call; must outlive the object, and its content is lost at each call
  explicit Gemm(GemmProvider provider, Vector<std::byte> scratch = {});

  /// What computes: never `automatic`.
  GemmProvider provider() const { return m_provider; }

  /// C = or += op(A) op(B), with op(X) = X or its transpose.                       reference: reference::gemm
  /// \param[in]  exec     work is enqueued here; returns without fencing. Complete on return if `exec` runs on the host
  /// \param[in]  a        (m, k), or (k, m) if `transpose_a`      \param[in] b  (k, n), or (n, k) if `transpose_b`
  /// \param[out] c        (m, n) overwritten or added to as `mode` says; must not overlap a or b. If k is 0 the product
  ///                      is 0
  /// \throws Error        if the extents do not fit together (the message names all three) or the scratch is smaller
  ///                      than gemm_scratch_bytes of the shape
  /// Work: 2 m n k FLOP; 4 (m k + k n + m n) bytes, and 4 m n more if `mode` adds. Sums in fp32, in an order that
  /// depends on the provider; |error| <= k eps |op(A)| |op(B)|.
  /// Label: trainstone::gemm[oneDNN], trainstone::gemm[KokkosBlas] or trainstone::gemm.
  void operator()(ExecutionSpace const& exec, Transpose transpose_a, Matrix<float const> a, Transpose transpose_b,
                  Matrix<float const> b, Matrix<float> c, Write mode);

private:
  GemmProvider m_provider;
  Vector<std::byte> m_scratch;
  Impl::GemmFunction m_compute;
};

} // namespace trainstone
