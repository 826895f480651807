#include "result/statistics.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace trainstone {

namespace {

double quantile_of_sorted(std::span<double const> sorted, double share) {
  double const position = share * static_cast<double>(sorted.size() - 1);
  auto const below = static_cast<std::size_t>(position);
  std::size_t const above = std::min(below + 1, sorted.size() - 1);
  double const weight = position - static_cast<double>(below);
  return sorted[below] + weight * (sorted[above] - sorted[below]);
}

double sum(std::span<double const> samples) { return std::accumulate(samples.begin(), samples.end(), 0.0); }

} // namespace

double mean(std::span<double const> samples) {
  TRAINSTONE_REQUIRE(!samples.empty(), "the mean of {} samples", samples.size());
  return sum(samples) / static_cast<double>(samples.size());
}

double quantile(std::span<double const> samples, double share) {
  TRAINSTONE_REQUIRE(!samples.empty() && share >= 0 && share <= 1, "quantile {} of {} samples", share, samples.size());
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return quantile_of_sorted(sorted, share);
}

double median(std::span<double const> samples) { return quantile(samples, 0.5); }

Summary summarize(std::span<double const> samples) {
  return {mean(samples),           median(samples),        quantile(samples, 0.05),
          quantile(samples, 0.95), quantile(samples, 0.0), quantile(samples, 1.0)};
}

Rate rate(double total_amount, std::span<double const> seconds) {
  double const total_seconds = sum(seconds);
  TRAINSTONE_REQUIRE(total_seconds > 0, "a rate over {} steps in {} s", seconds.size(), total_seconds);
  constexpr int resamplings = 2000;
  std::mt19937_64 generator(20240326); // any fixed seed
  std::vector<double> rates(resamplings);
  for (double& resampled : rates) {
    double time = 0;
    // The modulo's bias is below 1e-13 for any number of steps that fits into memory.
    for (std::size_t i = 0; i < seconds.size(); ++i) time += seconds[generator() % seconds.size()];
    resampled = total_amount / time;
  }
  std::sort(rates.begin(), rates.end());
  return {total_amount / total_seconds, quantile_of_sorted(rates, 0.025), quantile_of_sorted(rates, 0.975)};
}

} // namespace trainstone
