#pragma once

// From measured times to the curves that schedules are priced with. Owns the fit of a PiecewiseLinear to samples, and
// how good it is. Promises: a fitted curve never falls and is never negative; equal samples give equal curves; a
// prediction outside of what was measured can be told from the others. Does not measure.

#include "comm/simulation/machine_model.hpp"

#include <span>
#include <vector>

namespace trainstone {

/// The time that a number of bytes took, for instance the median of repetitions.
struct TimeSample {
  double bytes;
  double seconds;
};

/// The mean of the two in the middle if their number is even. \param[in] values at least one
double median(std::vector<double> values);

/// How far a curve is from samples: predicted / measured - 1 of each, by ascending bytes; absolute values summed up.
struct FitErrors {
  std::vector<TimeSample> samples;
  std::vector<double> relative;
  double median = 0;
  double worst = 0;
};

/// Of the samples that a curve was fitted to, or of others that were held out. \throws Error if there are none
FitErrors errors_of(PiecewiseLinear const& curve, std::span<TimeSample const> samples);

struct FittedCurve {
  PiecewiseLinear curve;
  double from_bytes = 0; ///< the smallest and the largest size that was measured
  double to_bytes = 0;
  FitErrors errors; ///< of the samples that it was fitted to

  bool extrapolates(double bytes) const { return bytes < from_bytes || bytes > to_bytes; }
};

inline constexpr int most_fitted_pieces = 4;

/// The curve of at most `most_pieces` lines with the least sum of squared relative errors, among all that never fall
/// and begin at or above zero; lines may meet or jump up where one ends and the next one begins. A further line is
/// taken only where the Bayesian information criterion pays for it: as five parameters, since its place is the best of
/// many (as three, 6 of 50 straight lines with 5 % noise were taken for several; as five, 1 of 500); errors below 0.5 %
/// do not count. A line needs two different sizes. One sample, or one size: a constant.
/// \param[in] samples in any order; repeated sizes are legal
/// \throws Error unless there is a sample, all bytes are >= 0, all seconds above 0, and all are finite
/// Sources: Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23 (non-negative least squares); Schwarz,
/// Estimating the Dimension of a Model, 1978.
FittedCurve fit_curve(std::span<TimeSample const> samples, int most_pieces = most_fitted_pieces);

} // namespace trainstone
