#include "kernels/measurement/gemm_measurement.hpp"

#include "kernels/measurement/peaks.hpp"

#include <algorithm>
#include <vector>

namespace trainstone {

namespace {

std::vector<GemmProvider> candidates() {
  std::vector<GemmProvider> found;
  for (GemmProvider const provider : built_gemm_providers())
    if (!rounds_fp32(provider)) found.push_back(provider);
  return found;
}

bool is_candidate(std::string const& name) {
  return std::ranges::count(candidates(), name, [](GemmProvider provider) { return to_string(provider); }) > 0;
}

} // namespace

std::map<std::string, std::string> measure_fastest_gemms(ExecutionSpace const& exec,
                                                         std::set<GemmShape> const& shapes) {
  double const seconds = 0.02; // at least three products each, twice
  // There and back: who else uses the machine for a while slows down all of them.
  std::vector<GemmProvider> const once = candidates();
  std::vector<GemmProvider> turns = once;
  turns.insert(turns.end(), once.rbegin(), once.rend());
  std::map<std::string, std::string> fastest;
  for (GemmShape const& shape : shapes) {
    double best = 0;
    for (GemmProvider const provider : turns) {
      double const rate = measure_gemm_peak(exec, provider, {&shape, 1}, seconds).flops_per_second;
      if (rate <= best) continue;
      best = rate;
      fastest[to_string(shape)] = to_string(provider);
    }
  }
  return fastest;
}

std::set<GemmShape> shapes_to_measure(std::set<GemmShape> const& shapes,
                                      std::map<std::string, std::string> const& fastest) {
  std::set<GemmShape> missing;
  for (GemmShape const& shape : shapes) {
    auto const found = fastest.find(to_string(shape));
    if (found == fastest.end() || !is_candidate(found->second)) missing.insert(shape);
  }
  return missing;
}

GemmChoice make_gemm_choice(std::map<std::string, std::string> const& fastest, std::set<GemmShape> const& shapes) {
  std::map<GemmShape, GemmProvider> chosen;
  for (GemmShape const& shape : shapes)
    if (auto const found = fastest.find(to_string(shape)); found != fastest.end())
      chosen[shape] = parse_gemm_provider(found->second);
  bool const all = !shapes.empty() && chosen.size() == shapes.size(); // then there is no need of another one
  return {all ? chosen.begin()->second : GemmProvider::automatic, chosen};
}

} // namespace trainstone
