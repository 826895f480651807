#include "advice/order_check.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace trainstone {

namespace {

int sign(double value) { return (value > 0) - (value < 0); }

double ratio(CheckedWay const& one) { return one.measured / one.way.time.step; }

} // namespace

double kendall_tau(std::vector<double> const& a, std::vector<double> const& b) {
  TRAINSTONE_REQUIRE(a.size() == b.size() && a.size() >= 2, "orders of {} and {} values", a.size(), b.size());
  double agreement = 0, differ_in_a = 0, differ_in_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = i + 1; j < a.size(); ++j) {
      int const of_a = sign(a[i] - a[j]), of_b = sign(b[i] - b[j]);
      agreement += of_a * of_b;
      differ_in_a += of_a != 0;
      differ_in_b += of_b != 0;
    }
  double const pairs = std::sqrt(differ_in_a * differ_in_b);
  return pairs > 0 ? agreement / pairs : 0;
}

std::vector<std::size_t> spread_choices(std::vector<RankedWay> const& ranked, std::size_t count) {
  auto const played = static_cast<std::size_t>(std::ranges::count_if(ranked, &RankedWay::played));
  std::set<std::size_t> chosen;
  if (played == 0 || count == 0) return {};
  double const first = std::log(ranked[0].time.step), last = std::log(ranked[played - 1].time.step);
  std::size_t const wanted = std::min(count, played);
  for (std::size_t i = 0; i < wanted; ++i) {
    double const share = wanted == 1 ? 0 : static_cast<double>(i) / static_cast<double>(wanted - 1);
    double const target = first + share * (last - first);
    std::size_t best = played;
    for (std::size_t number = 0; number < played; ++number) {
      if (chosen.contains(number)) continue;
      auto const distance = [&](std::size_t one) { return std::abs(std::log(ranked[one].time.step) - target); };
      if (best == played || distance(number) < distance(best)) best = number;
    }
    chosen.insert(best);
  }
  return {chosen.begin(), chosen.end()};
}

RankedOrder check_order(std::vector<CheckedWay> ways) {
  RankedOrder check{.ways = std::move(ways)};
  std::vector<double> predicted, measured, ratios;
  for (CheckedWay const& one : check.ways) {
    predicted.push_back(one.way.time.step);
    measured.push_back(one.measured);
    ratios.push_back(ratio(one));
  }
  check.tau = kendall_tau(predicted, measured);
  std::ranges::sort(ratios);
  check.scale = (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
  auto const distance = [&](CheckedWay const& one) { return std::abs(std::log(ratio(one) / check.scale)); };
  check.worst = static_cast<std::size_t>(std::ranges::max_element(check.ways, {}, distance) - check.ways.begin());
  return check;
}

std::string order_check_text(RankedOrder const& check) {
  std::string text = fmt::format("{:>12} {:>12} {:>9}  way\n", "predicted", "measured", "residual");
  auto const residual = [&](CheckedWay const& one) { return 100 * (check.scale / ratio(one) - 1); };
  for (CheckedWay const& one : check.ways)
    text += fmt::format("{:>10.4g} s {:>10.4g} s {:>+7.1f} %  {}\n", one.way.time.step, one.measured, residual(one),
                        to_string(one.way.way));
  CheckedWay const& worst = check.ways[check.worst];
  return text + fmt::format("Kendall's tau {:.3f} of {} ways, at least {} wanted; measured = {:.3f} x predicted in the "
                            "median, from which residuals count; worst residual {:+.1f} %: {}\n",
                            check.tau, check.ways.size(), least_tau, check.scale, residual(worst),
                            to_string(worst.way.way));
}

} // namespace trainstone
