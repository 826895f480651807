#include "kernels/measurement/gemm_measurement.hpp"

#include "core/error.hpp"
#include "kernels/measurement/peaks.hpp"

#include <algorithm>

namespace trainstone {

namespace {

bool is_candidate(std::string const& name, GemmShape const& shape) {
  return std::ranges::count(gemm_candidates(shape), name, [](GemmMethod const& method) { return to_string(method); }) >
         0;
}

} // namespace

std::vector<GemmMethod> gemm_candidates(GemmShape const& shape) {
  std::vector<GemmMethod> found;
  for (GemmProvider const provider : built_gemm_providers()) {
    if (rounds_fp32(provider)) continue;
    int const variants = gemm_variants(provider, shape);
    for (int variant = 0; variant < variants; ++variant) found.push_back({provider, variant});
  }
  return found;
}

GemmMethod fastest_gemm(std::vector<GemmMethod> const& candidates, GemmShape const& shape, GemmRate const& rate) {
  TRAINSTONE_REQUIRE(!candidates.empty(), "nobody computes {}", to_string(shape));
  std::vector<double> best(candidates.size());
  auto const measure = [&](std::size_t i) { best[i] = std::max(best[i], rate(candidates[i], shape)); };
  for (std::size_t i = 0; i < candidates.size(); ++i) measure(i);
  for (std::size_t i = candidates.size(); i-- > 0;) measure(i);
  return candidates[static_cast<std::size_t>(std::ranges::max_element(best) - best.begin())];
}

std::map<std::string, std::string> measure_fastest_gemms(ExecutionSpace const& exec,
                                                         std::set<GemmShape> const& shapes) {
  double const seconds = 0.02; // at least three products each, twice
  auto const rate = [&](GemmMethod const& method, GemmShape const& shape) {
    return measure_gemm_peak(exec, method, {&shape, 1}, seconds).flops_per_second;
  };
  std::map<std::string, std::string> fastest;
  for (GemmShape const& shape : shapes)
    fastest[to_string(shape)] = to_string(fastest_gemm(gemm_candidates(shape), shape, rate));
  return fastest;
}

std::set<GemmShape> shapes_to_measure(std::set<GemmShape> const& shapes,
                                      std::map<std::string, std::string> const& fastest) {
  std::set<GemmShape> missing;
  for (GemmShape const& shape : shapes) {
    auto const found = fastest.find(to_string(shape));
    if (found == fastest.end() || !is_candidate(found->second, shape)) missing.insert(shape);
  }
  return missing;
}

GemmChoice make_gemm_choice(std::map<std::string, std::string> const& fastest, std::set<GemmShape> const& shapes) {
  std::map<GemmShape, GemmMethod> chosen;
  for (GemmShape const& shape : shapes)
    if (auto const found = fastest.find(to_string(shape)); found != fastest.end())
      chosen.insert_or_assign(shape, parse_gemm_method(found->second));
  bool const all = !shapes.empty() && chosen.size() == shapes.size(); // then there is no need of another one
  return {all ? chosen.begin()->second.provider : GemmProvider::automatic, chosen};
}

} // namespace trainstone
