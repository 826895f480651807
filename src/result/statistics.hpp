#pragma once

// Statistics of measured times. Pure functions; the bootstrap has a fixed seed, so equal samples give equal intervals.

#include <cstdint>
#include <span>

namespace trainstone {

/// Each throws Error on an empty range.
double mean(std::span<double const> samples);
/// Linear interpolation between order statistics; quantile(samples, 0.5) is the median. share in [0, 1].
double quantile(std::span<double const> samples, double share);
double median(std::span<double const> samples);

struct Summary {
  double mean = 0, median = 0, p05 = 0, p95 = 0, minimum = 0, maximum = 0;
};
Summary summarize(std::span<double const> samples);

/// An amount per second with its 95 % confidence interval.
struct Rate {
  double value = 0, low = 0, high = 0;
};

/// total_amount / (sum of seconds). The interval is the bootstrap's: percentiles 2.5 and 97.5 of the rate over 2000
/// resamplings of the step times. One step gives an interval of width zero.
Rate rate(double total_amount, std::span<double const> seconds);

} // namespace trainstone
