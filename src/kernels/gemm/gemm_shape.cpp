// What needs no provider: functions that ask the providers of the build are in gemm.cpp.

#include "kernels/gemm/gemm_shape.hpp"

#include "core/error.hpp"
#include "kernels/common/config.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace trainstone {

namespace {

std::string_view words_for(EpilogueKind epilogue) {
  constexpr std::array<std::string_view, 5> words{"", " with bias", " with bias and GELU", " with the GELU's gradient",
                                                  " with the bias' gradient"};
  return words[static_cast<std::size_t>(epilogue)];
}

} // namespace

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
  return fmt::format("C ({0}, {1}) {6} {3} A{4} ({0}, {2}) B{5} ({2}, {1}) {7}{8}", shape.m, shape.n, shape.k,
                     shape.mode == Write::add ? "+=" : "=", shape.a == Transpose::yes ? "^T" : "",
                     shape.b == Transpose::yes ? "^T" : "", trainstone::to_string(shape.output),
                     trainstone::to_string(shape.inputs), words_for(shape.epilogue));
}

std::string to_string(GemmMethod const& method) {
  std::string name(to_string(method.provider));
  if (method.variant > 0) name += fmt::format("#{}", method.variant);
  return name;
}

GemmMethod parse_gemm_method(std::string_view name) {
  std::size_t const mark = std::min(name.find('#'), name.size());
  GemmMethod method = parse_gemm_provider(name.substr(0, mark));
  if (mark == name.size()) return method;
  auto const [end, error] = std::from_chars(name.data() + mark + 1, name.data() + name.size(), method.variant);
  TRAINSTONE_REQUIRE_INPUT(error == std::errc() && end == name.data() + name.size() && method.variant > 0,
                           "'{}' names no variant of a GEMM provider: they are numbered, as {}#1", name,
                           to_string(method.provider));
  return method;
}

GemmChoice::GemmChoice(GemmProvider usual, std::map<GemmShape, GemmMethod> const& others) : GemmChoice(usual) {
  for (auto const& [shape, method] : others)
    m_others.insert_or_assign(shape, GemmMethod{resolve_gemm_provider(method.provider), method.variant});
}

GemmMethod GemmChoice::operator()(GemmShape const& shape) const {
  auto const found = m_others.find(shape);
  return found == m_others.end() ? GemmMethod(m_usual) : found->second;
}

std::vector<GemmProvider> GemmChoice::providers() const {
  std::vector<GemmProvider> all{m_usual};
  for (auto const& [shape, method] : m_others)
    if (std::ranges::count(all, method.provider) == 0) all.push_back(method.provider);
  return all;
}

std::string describe_gemm(GemmChoice const& choice, Storage inputs) {
  std::vector<std::string> descriptions;
  for (GemmProvider const provider : choice.providers()) descriptions.push_back(describe_gemm(provider, inputs));
  return fmt::format("{}", fmt::join(descriptions, ", "));
}

} // namespace trainstone
