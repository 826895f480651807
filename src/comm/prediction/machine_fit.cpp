#include "comm/prediction/machine_fit.hpp"

#include "comm/prediction/non_negative_least_squares.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace trainstone {

namespace {

constexpr double noise_floor = 0.005;  // relative: smaller errors are none, so that exact data needs no further lines
constexpr int parameters_per_line = 5; // start, slope, and its place: the best of many, which is worth about three
constexpr int samples_per_line = 4;    // fewer would be interpolated

/// Samples by ascending bytes, and where each different size begins among them (and the end).
struct Samples {
  std::vector<TimeSample> all;
  std::vector<std::size_t> first_of_size;

  std::size_t sizes() const { return first_of_size.size() - 1; }
  double bytes_of_size(std::size_t size) const { return all[first_of_size[size]].bytes; }
};

Samples sorted(std::span<TimeSample const> given) {
  TRAINSTONE_REQUIRE(!given.empty(), "a curve needs samples, there are {}", given.size());
  Samples samples{{given.begin(), given.end()}, {}};
  for (TimeSample const& sample : given)
    TRAINSTONE_REQUIRE(std::isfinite(sample.bytes) && sample.bytes >= 0 && std::isfinite(sample.seconds) &&
                           sample.seconds > 0,
                       "a sample of {} bytes in {} s", sample.bytes, sample.seconds);
  std::ranges::sort(samples.all, {}, [](TimeSample const& s) { return std::pair(s.bytes, s.seconds); });
  for (std::size_t i = 0; i < samples.all.size(); ++i)
    if (i == 0 || samples.all[i].bytes != samples.all[i - 1].bytes) samples.first_of_size.push_back(i);
  samples.first_of_size.push_back(samples.all.size());
  return samples;
}

/// The least sum of squared relative errors of one line through samples first ... last-1, whatever its signs.
double free_line_error(std::vector<TimeSample> const& all, std::size_t first, std::size_t last) {
  double weights = 0, bytes = 0, seconds = 0;
  for (std::size_t i = first; i < last; ++i) {
    double const weight = 1 / (all[i].seconds * all[i].seconds);
    weights += weight;
    bytes += weight * all[i].bytes;
    seconds += weight * all[i].seconds;
  }
  bytes /= weights;
  seconds /= weights;
  double squares = 0, products = 0;
  for (std::size_t i = first; i < last; ++i) {
    double const scaled = (all[i].bytes - bytes) / all[i].seconds;
    squares += scaled * scaled;
    products += scaled * (all[i].seconds - seconds) / all[i].seconds;
  }
  double const slope = squares > 0 ? products / squares : 0;
  double error = 0;
  for (std::size_t i = first; i < last; ++i) {
    double const relative = (seconds + slope * (all[i].bytes - bytes)) / all[i].seconds - 1;
    error += relative * relative;
  }
  return error;
}

/// Where lines end, as numbers of sizes: line k has the sizes ends[k-1] ... ends[k]-1.
struct Split {
  std::vector<std::size_t> ends;
  double at_least; ///< no curve of these lines has a smaller error
};

/// All ways to cut the sizes into `lines` runs of two or more, the most promising first.
std::vector<Split> splits(Samples const& samples, int lines) {
  std::size_t const sizes = samples.sizes();
  std::vector<std::vector<double>> error(sizes + 1, std::vector<double>(sizes + 1, 0.0));
  for (std::size_t from = 0; from < sizes; ++from)
    for (std::size_t to = from + 1; to <= sizes; ++to)
      error[from][to] = free_line_error(samples.all, samples.first_of_size[from], samples.first_of_size[to]);

  std::vector<Split> partial{{{}, 0}};
  for (int line = 1; line <= lines; ++line) {
    std::vector<Split> longer;
    std::size_t const after = 2 * static_cast<std::size_t>(lines - line); // sizes that the later lines need
    for (Split const& split : partial) {
      std::size_t const begin = split.ends.empty() ? 0 : split.ends.back();
      std::size_t const shortest = lines == 1 ? begin + 1 : begin + 2;
      for (std::size_t end = line == lines ? sizes : shortest; end >= shortest && end + after <= sizes; ++end) {
        longer.push_back(split);
        longer.back().ends.push_back(end);
        longer.back().at_least += error[begin][end];
      }
    }
    partial = std::move(longer);
  }
  std::ranges::stable_sort(partial, {}, &Split::at_least);
  return partial;
}

/// Lines that never fall, as non-negative unknowns: the value at 0 bytes, a slope per line, a jump where one begins.
/// Of line k+1 the jump lies at `knots[k]`.
struct Lines {
  std::vector<double> slopes;
  std::vector<double> values; ///< of line k where it begins, behind the jump
  std::vector<double> knots;  ///< knots[0] = 0: where line k begins
  double error = std::numeric_limits<double>::infinity();

  double start(std::size_t k) const { return values[k] - slopes[k] * knots[k]; }
};

Lines fit_lines(Samples const& samples, Split const& split, std::vector<double> knots) {
  std::size_t const lines = knots.size();
  std::vector<Impl::Column> columns(2 * lines, Impl::Column(samples.all.size(), 0.0)); // slopes, then value and jumps
  std::size_t line = 0;
  for (std::size_t i = 0; i < samples.all.size(); ++i) {
    while (i >= samples.first_of_size[split.ends[line]]) ++line;
    TimeSample const& sample = samples.all[i];
    for (std::size_t k = 0; k <= line; ++k) {
      double const until = k == line ? sample.bytes : knots[k + 1];
      columns[k][i] = (until - knots[k]) / sample.seconds;
      columns[lines + k][i] = 1 / sample.seconds;
    }
  }
  if (samples.sizes() == 1) columns[0].assign(samples.all.size(), 0.0); // one size tells nothing of a slope
  Impl::Column const target(samples.all.size(), 1.0);
  std::vector<double> const x = Impl::non_negative_least_squares(columns, target);

  Lines fitted{{x.begin(), x.begin() + static_cast<std::ptrdiff_t>(lines)}, {}, std::move(knots), 0};
  double value = 0;
  for (std::size_t k = 0; k < lines; ++k) {
    if (k > 0) value += x[k - 1] * (fitted.knots[k] - fitted.knots[k - 1]);
    value += x[lines + k];
    fitted.values.push_back(value);
  }
  for (std::size_t i = 0; i < samples.all.size(); ++i) {
    double relative = -1;
    for (std::size_t k = 0; k < columns.size(); ++k) relative += x[k] * columns[k][i];
    fitted.error += relative * relative;
  }
  return fitted;
}

/// Two lines never fall if the later one is not below the earlier one at one end of the gap between them: each gap
/// has a knot at its lower end or at its upper one, and the better of all such choices is the best curve.
Lines best_knots(Samples const& samples, Split const& split) {
  std::size_t const gaps = split.ends.size() - 1;
  Lines best;
  for (std::size_t choice = 0; choice < (std::size_t{1} << gaps); ++choice) {
    std::vector<double> knots{0};
    for (std::size_t gap = 0; gap < gaps; ++gap) {
      bool const upper = (choice >> gap) % 2 == 1;
      knots.push_back(samples.bytes_of_size(split.ends[gap] - (upper ? 0 : 1)));
    }
    Lines candidate = fit_lines(samples, split, std::move(knots));
    if (candidate.error < best.error) best = std::move(candidate);
  }
  return best;
}

/// Knots are where neighbouring lines meet, or, if they do not meet in the gap between their samples, in its middle.
PiecewiseLinear to_curve(Samples const& samples, Split const& split, Lines const& lines) {
  std::vector<PiecewiseLinear::Piece> pieces{{0, lines.start(0), lines.slopes[0]}};
  for (std::size_t k = 1; k < lines.slopes.size(); ++k) {
    double const low = samples.bytes_of_size(split.ends[k - 1] - 1);
    double const high = samples.bytes_of_size(split.ends[k - 1]);
    double const steeper = lines.slopes[k] - lines.slopes[k - 1];
    double const meet = steeper != 0 ? (lines.start(k - 1) - lines.start(k)) / steeper : -1;
    double const from = meet >= low && meet <= high ? meet : std::sqrt(low * high);
    pieces.push_back({from, lines.start(k), lines.slopes[k]});
  }
  return PiecewiseLinear(std::move(pieces));
}

/// The best curve of exactly `lines` lines, and its error.
std::pair<PiecewiseLinear, double> best_curve(Samples const& samples, int lines) {
  PiecewiseLinear curve;
  double error = std::numeric_limits<double>::infinity();
  for (Split const& split : splits(samples, lines)) {
    if (split.at_least >= error) break;
    Lines const found = best_knots(samples, split);
    if (found.error >= error) continue;
    error = found.error;
    curve = to_curve(samples, split, found);
  }
  return {curve, error};
}

} // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  std::size_t const half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

FitErrors errors_of(PiecewiseLinear const& curve, std::span<TimeSample const> samples) {
  FitErrors errors;
  errors.samples = sorted(samples).all;
  std::vector<double> sizes;
  for (TimeSample const& sample : errors.samples) {
    errors.relative.push_back(curve(sample.bytes) / sample.seconds - 1);
    sizes.push_back(std::abs(errors.relative.back()));
  }
  errors.worst = std::ranges::max(sizes);
  errors.median = median(std::move(sizes));
  return errors;
}

FittedCurve fit_curve(std::span<TimeSample const> given, int most_pieces) {
  TRAINSTONE_REQUIRE(most_pieces >= 1, "a curve of at most {} lines", most_pieces);
  Samples const samples = sorted(given);
  auto const count = static_cast<double>(samples.all.size());
  FittedCurve fitted;
  fitted.from_bytes = samples.all.front().bytes;
  fitted.to_bytes = samples.all.back().bytes;
  double best = std::numeric_limits<double>::infinity();
  for (int lines = 1; lines <= most_pieces; ++lines) {
    auto const needed = static_cast<std::size_t>(lines * samples_per_line);
    if (lines > 1 && (samples.sizes() < 2 * static_cast<std::size_t>(lines) || samples.all.size() < needed)) break;
    auto const [curve, error] = best_curve(samples, lines);
    double const criterion =
        count * std::log(error / count + noise_floor * noise_floor) + parameters_per_line * lines * std::log(count);
    if (criterion >= best) continue;
    best = criterion;
    fitted.curve = curve;
  }
  fitted.errors = errors_of(fitted.curve, samples.all);
  return fitted;
}

} // namespace trainstone
