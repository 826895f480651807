// What needs no provider: functions that ask the providers of the build are in gemm.cpp.

#include "kernels/gemm/gemm_shape.hpp"

#include "core/error.hpp"
#include "kernels/common/config.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace trainstone {

std::string_view to_string(GemmProvider provider) { return gemm_provider_names[static_cast<std::size_t>(provider)]; }

GemmProvider parse_gemm_provider(std::string_view name) {
  auto const found = std::ranges::find(gemm_provider_names, name);
  TRAINSTONE_REQUIRE_INPUT(found != gemm_provider_names.end(), "no GEMM provider is called '{}'; there are {}", name,
                           fmt::join(gemm_provider_names, ", "));
  return static_cast<GemmProvider>(found - gemm_provider_names.begin());
}

std::uint64_t GemmShape::flops() const { return 2 * static_cast<std::uint64_t>(m * n * k); }

std::uint64_t GemmShape::bytes() const {
  Index const written = m * n * (mode == Write::add ? 2 : 1);
  return bytes_per_value(inputs) * static_cast<std::uint64_t>(m * k + k * n) +
         bytes_per_value(output) * static_cast<std::uint64_t>(written);
}

std::string to_string(GemmShape const& shape) {
  return fmt::format("C ({0}, {1}) {6} {3} A{4} ({0}, {2}) B{5} ({2}, {1}) {7}", shape.m, shape.n, shape.k,
                     shape.mode == Write::add ? "+=" : "=", shape.a == Transpose::yes ? "^T" : "",
                     shape.b == Transpose::yes ? "^T" : "", trainstone::to_string(shape.output),
                     trainstone::to_string(shape.inputs));
}

GemmChoice::GemmChoice(GemmProvider usual, std::map<GemmShape, GemmProvider> const& others) : GemmChoice(usual) {
  for (auto const& [shape, provider] : others) {
    GemmShape of_product = shape;
    of_product.epilogue = EpilogueKind::none;
    m_others[of_product] = resolve_gemm_provider(provider);
  }
}

GemmProvider GemmChoice::operator()(GemmShape shape) const {
  shape.epilogue = EpilogueKind::none;
  auto const found = m_others.find(shape);
  return found == m_others.end() ? m_usual : found->second;
}

std::vector<GemmProvider> GemmChoice::providers() const {
  std::vector<GemmProvider> all{m_usual};
  for (auto const& [shape, provider] : m_others)
    if (std::ranges::count(all, provider) == 0) all.push_back(provider);
  return all;
}

std::string describe_gemm(GemmChoice const& choice, Storage inputs) {
  std::vector<std::string> descriptions;
  for (GemmProvider const provider : choice.providers()) descriptions.push_back(describe_gemm(provider, inputs));
  return fmt::format("{}", fmt::join(descriptions, ", "));
}

} // namespace trainstone
