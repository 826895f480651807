#include "report/calibration_table.hpp"

#include "core/error.hpp"
#include "result/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

constexpr double micro = 1e6;
constexpr double giga = 1e9;

std::vector<double> absolute_errors(FittedCurveText const& curve, bool held_out, double from_bytes = 0) {
  std::vector<double> errors;
  for (SizeError const& size : curve.errors)
    if (size.held_out == held_out && size.bytes >= from_bytes) errors.push_back(std::abs(size.error));
  return errors;
}

std::string error_summary(std::vector<double> const& errors, char const* what) {
  if (errors.empty()) return "";
  return fmt::format("#   {}: |error| median {:.1f} %, largest {:.1f} %, {} size{}\n", what, 100 * median(errors),
                     100 * quantile(errors, 1), errors.size(), errors.size() == 1 ? "" : "s");
}

} // namespace

double share_within(FittedCurveText const& curve, double from_bytes, double limit) {
  std::vector<double> const errors = absolute_errors(curve, true, from_bytes);
  TRAINSTONE_REQUIRE(!errors.empty(), "{} has no held-out sizes from {} bytes on", curve.name, from_bytes);
  auto const good = std::ranges::count_if(errors, [limit](double error) { return error <= limit; });
  return static_cast<double>(good) / static_cast<double>(errors.size());
}

std::string curve_lines(FittedCurveText const& curve) {
  std::string text = fmt::format("# {}\n", curve.name);
  for (CurvePiece const& piece : curve.pieces) {
    std::string const rate = piece.per_byte > 0 ? fmt::format("{:.2f} GB/s", 1 / piece.per_byte / giga) : "no slope";
    text += fmt::format("    from {:>12.0f} B: {:>10.3f} us + {}\n", piece.from_bytes, piece.start * micro, rate);
  }
  return text + error_summary(absolute_errors(curve, false), "fitted  ") +
         error_summary(absolute_errors(curve, true), "held out");
}

std::string curve_error_lines(FittedCurveText const& curve) {
  std::string text;
  for (SizeError const& size : curve.errors) {
    text += fmt::format("    {:>12.0f} B {:>12.3f} us {:>8.1f} %{}\n", size.bytes, size.seconds * micro,
                        100 * size.error, size.held_out ? "  held out" : "");
  }
  return text;
}

} // namespace trainstone
