#include "kernels/gemm_impl.hpp"

#include "core/error.hpp"
#include "kernels/config.hpp"
#include "kernels/shapes.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace trainstone {

namespace {

struct Provider {
  GemmProvider provider;
  std::uint64_t (*scratch_bytes)(GemmShape const&);
  Impl::GemmFunction (*make)();
};

std::uint64_t no_scratch(GemmShape const&) { return 0; }

Impl::GemmFunction make_kokkos_gemm() {
  return [](ExecutionSpace const& exec, GemmShape const& shape, float const* a, float const* b, float* c,
            Vector<std::byte>) { Impl::kokkos_gemm(exec, shape, a, b, c); };
}

/// What this build has, in the order in which `automatic` prefers them. The build system sets the macros together with
/// the files.
constexpr Provider providers[] = {
#ifdef TRAINSTONE_HAVE_ONEDNN
    {GemmProvider::onednn, Impl::onednn_gemm_scratch_bytes, Impl::make_onednn_gemm},
#endif
#ifdef TRAINSTONE_HAVE_KOKKOS_KERNELS
    {GemmProvider::kokkos_kernels, no_scratch, Impl::make_kokkos_kernels_gemm},
#endif
    {GemmProvider::kokkos, no_scratch, make_kokkos_gemm},
};

constexpr auto built = [] {
  std::array<GemmProvider, std::size(providers)> result{};
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = providers[i].provider;
  return result;
}();

std::string built_names() {
  std::vector<std::string_view> names;
  for (GemmProvider const provider : built) names.push_back(to_string(provider));
  return fmt::format("{}", fmt::join(names, ", "));
}

Provider const& find_provider(GemmProvider provider) {
  GemmProvider const resolved = resolve_gemm_provider(provider);
  return *std::ranges::find(providers, resolved, &Provider::provider);
}

GemmShape shape_of(Transpose transpose_a, Matrix<float const> a, Transpose transpose_b, Matrix<float const> b,
                   Matrix<float> c, Write mode) {
  using Impl::extent;
  int const a_row = transpose_a == Transpose::no ? 0 : 1;
  int const b_row = transpose_b == Transpose::no ? 0 : 1;
  GemmShape const shape{extent(c, 0), extent(c, 1), extent(a, 1 - a_row), transpose_a, transpose_b, mode};
  TRAINSTONE_REQUIRE(extent(a, a_row) == shape.m && extent(b, b_row) == shape.k && extent(b, 1 - b_row) == shape.n,
                     "matrix product of unfit extents: A ({}, {}){} times B ({}, {}){} into C ({}, {})", extent(a, 0),
                     extent(a, 1), a_row == 1 ? " transposed" : "", extent(b, 0), extent(b, 1),
                     b_row == 1 ? " transposed" : "", shape.m, shape.n);
  return shape;
}

} // namespace

std::string_view to_string(GemmProvider provider) { return gemm_provider_names[static_cast<std::size_t>(provider)]; }

GemmProvider parse_gemm_provider(std::string_view name) {
  auto const found = std::ranges::find(gemm_provider_names, name);
  TRAINSTONE_REQUIRE_INPUT(found != gemm_provider_names.end(), "no GEMM provider is called '{}'; there are {}", name,
                           fmt::join(gemm_provider_names, ", "));
  return static_cast<GemmProvider>(found - gemm_provider_names.begin());
}

std::span<GemmProvider const> built_gemm_providers() { return built; }

GemmProvider resolve_gemm_provider(GemmProvider provider) {
  if (provider == GemmProvider::automatic) return built.front();
  TRAINSTONE_REQUIRE_INPUT(std::ranges::find(built, provider) != built.end(),
                           "this build has no GEMM provider {}; it has {}", to_string(provider), built_names());
  return provider;
}

std::uint64_t GemmShape::flops() const { return 2 * static_cast<std::uint64_t>(m * n * k); }

std::uint64_t GemmShape::bytes() const {
  Index const written = m * n * (mode == Write::add ? 2 : 1);
  return sizeof(float) * static_cast<std::uint64_t>(m * k + k * n + written);
}

std::string Impl::to_string(GemmShape const& shape) {
  return fmt::format("C ({0}, {1}) {3} A{4} ({0}, {2}) B{5} ({2}, {1})", shape.m, shape.n, shape.k,
                     shape.mode == Write::add ? "+=" : "=", shape.a == Transpose::yes ? "^T" : "",
                     shape.b == Transpose::yes ? "^T" : "");
}

std::uint64_t gemm_scratch_bytes(GemmProvider provider, GemmShape const& shape) {
  Provider const& found = find_provider(provider);
  bool const empty = shape.m == 0 || shape.n == 0 || shape.k == 0;
  return empty ? 0 : found.scratch_bytes(shape);
}

Gemm::Gemm(GemmProvider provider, Vector<std::byte> scratch)
    : m_provider(resolve_gemm_provider(provider)), m_scratch(scratch), m_compute(find_provider(m_provider).make()) {}

void Gemm::operator()(ExecutionSpace const& exec, Transpose transpose_a, Matrix<float const> a, Transpose transpose_b,
                      Matrix<float const> b, Matrix<float> c, Write mode) {
  GemmShape const shape = shape_of(transpose_a, a, transpose_b, b, c, mode);
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) return Impl::kokkos_gemm(exec, shape, a.data(), b.data(), c.data()); // libraries need not take it
  m_compute(exec, shape, a.data(), b.data(), c.data(), m_scratch);
}

} // namespace trainstone
