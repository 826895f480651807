#pragma once

// The output of calibrate: the fitted curves, and their errors for fitted and for held-out sizes. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainstone {

/// One line of a piecewise curve.
struct CurvePiece {
  double from_bytes;
  double start;    ///< seconds, extrapolated to 0 bytes
  double per_byte; ///< seconds
};

/// Errors are predicted / measured - 1.
struct SizeError {
  double bytes;
  double seconds; ///< measured
  double error;
  bool held_out;
};

struct FittedCurveText {
  std::string name;
  std::vector<CurvePiece> pieces;
  std::vector<SizeError> errors; ///< by ascending bytes
};

/// The share of the absolute errors of some curve's held-out sizes from `from_bytes` on that are at most `limit`.
/// \throws Error if there are none
double share_within(FittedCurveText const& curve, double from_bytes, double limit);

/// Lines, each with its end: pieces (from bytes, start in us, rate in GB/s), then median and largest absolute error of
/// the fitted and of the held-out sizes.
std::string curve_lines(FittedCurveText const& curve);
/// Every size: measured us, error in percent, "held out".
std::string curve_error_lines(FittedCurveText const& curve);

} // namespace trainstone
