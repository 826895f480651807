// Axes, ticks and the drawing of plots: what a picture has and what it refuses.

#include "report/plot.hpp"

#include "core/error.hpp"
#include "report/shown_unit.hpp"
#include "report/svg.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <limits>
#include <regex>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

namespace {

using Values = std::vector<double>;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::size_t occurrences(std::string const& text, std::string const& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

Plot plot_of(std::vector<Series> series, Scale y = Scale::linear) {
  return {.title = "title", .x = {.label = "x"}, .y = {.label = "y", .scale = y}, .series = std::move(series)};
}

std::string error_of(Plot const& plot) {
  try {
    plot_svg(plot);
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}

/// Coordinates of the first circle's centre.
std::pair<double, double> mark_of(std::string const& svg) {
  std::smatch found;
  if (!std::regex_search(svg, found, std::regex("M([-.0-9]+),([-.0-9]+)m-3.5,0a"))) return {-1, -1};
  return {std::stod(found[1]), std::stod(found[2])};
}

} // namespace

TEST_CASE("linear ticks are round, within the interval and no more than asked for", "[report][plot]") {
  CHECK(linear_ticks({0, 10}, 6) == Values{0, 2, 4, 6, 8, 10});
  CHECK(linear_ticks({0, 1600}, 9) == Values{0, 200, 400, 600, 800, 1000, 1200, 1400, 1600});
  CHECK(linear_ticks({1.93, 5.53}, 8) == Values{2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5});
  CHECK(linear_ticks({-7, 3}, 3) == Values{-5, 0});
  for (double const low : {-3e9, -1.0, 0.0, 1e-12, 0.7, 12345.0})
    for (double const span : {1e-6, 0.37, 1.0, 99.0, 1e12})
      for (std::size_t const most : {2, 3, 7, 20}) {
        if (span < 1e-12 * std::abs(low)) continue;
        CAPTURE(low, span, most);
        double const slack = 1e-8 * span + 1e-15 * std::abs(low);
        Values const ticks = linear_ticks({low, low + span}, most);
        CHECK(ticks.size() <= most);
        if (most > 3) CHECK(ticks.size() >= 2);
        for (double const tick : ticks) CHECK((tick >= low - slack && tick <= low + span + slack));
      }
  CHECK_THROWS_AS(linear_ticks({1, 1}, 5), Error);
  CHECK_THROWS_AS(linear_ticks({3e9, std::nextafter(3e9, 4e9)}, 5), Error);
  CHECK_THROWS_AS(linear_ticks({0, not_a_number}, 5), Error);
}

TEST_CASE("logarithmic ticks are powers, thinned where there are many and refined where there are few",
          "[report][plot]") {
  CHECK(log_ticks({1, 16}, 2, 9) == Values{1, 2, 4, 8, 16});
  CHECK(log_ticks({8, 1 << 20}, 2, 9) == Values{8, 32, 128, 512, 2048, 8192, 32768, 131072, 524288});
  CHECK(log_ticks({1, 100}, 10, 12) == Values{1, 2, 5, 10, 20, 50, 100});
  CHECK(log_ticks({1e-3, 1e4}, 10, 9) == Values{1e-3, 1e-2, 1e-1, 1, 10, 100, 1e3, 1e4});
  CHECK(log_ticks({3.1, 30}, 10, 5) == linear_ticks({3.1, 30}, 5));
  CHECK(log_ticks({40, 60}, 2, 5) == linear_ticks({40, 60}, 5));
  CHECK_THROWS_AS(log_ticks({0, 1}, 10, 5), Error);
}

TEST_CASE("ticks read with as few digits as tell them apart", "[report][plot]") {
  CHECK(tick_text(0.5, Values{0, 0.5, 1}) == "0.5");
  CHECK(tick_text(1, Values{0, 0.5, 1}) == "1.0");
  CHECK(tick_text(0, Values{0, 0.5, 1}) == "0");
  CHECK(tick_text(1600, Values{0, 800, 1600}) == "1600");
  CHECK(tick_text(0.25, Values{0.25, 0.5}) == "0.25");
  CHECK(tick_text(2e-6, Values{0, 2e-6}) == "2e-06");
  CHECK(tick_text(5e9, Values{0, 5e9}) == "5e+09");
  CHECK(tick_text(3, Values{3}) == "3");
  CHECK(bytes_text(8) == "8 B");
  CHECK(bytes_text(1024) == "1 KiB");
  CHECK(bytes_text(1.5 * 1024 * 1024) == "1.5 MiB");
  CHECK(bytes_text(3072.0 * 1024 * 1024 * 1024) == "3 TiB");
}

TEST_CASE("an axis lays values out in proportion, or in proportion to their logarithms", "[report][plot]") {
  LaidAxis const linear({.label = "a"}, Values{10, 20}, 100, 200, 5);
  CHECK_THAT(linear.at(15), WithinAbs(150, 1e-9));
  LaidAxis const upwards({.label = "a"}, Values{10, 20}, 200, 100, 5);
  CHECK_THAT(upwards.at(12), WithinAbs(180, 1e-9));
  LaidAxis const log({.label = "a", .scale = Scale::log, .base = 2}, Values{1, 16}, 0, 100, 9);
  CHECK_THAT(log.at(4), WithinAbs(50, 1e-9));
  CHECK(log.labels() == std::vector<std::string>{"1", "2", "4", "8", "16"});
  LaidAxis const zero({.label = "a", .from_zero = true}, Values{10, 20}, 0, 100, 5);
  CHECK(zero.interval() == Interval{0, 20});
}

TEST_CASE("one value, equal values and none get an axis that shows them", "[report][plot]") {
  double const next = std::nextafter(3e9, 4e9);
  for (Values const& values : {Values{7}, Values{7, 7, 7}, Values{0, 0}, Values{-2}, Values{3e9, next}, Values{}}) {
    CAPTURE(values.size());
    LaidAxis const axis({.label = "a"}, values, 0, 100, 5);
    CHECK(axis.interval().low < axis.interval().high);
    CHECK(axis.ticks().size() >= 2);
    if (!values.empty()) CHECK_THAT(axis.at(values[0]), WithinAbs(50, 1e-9));
  }
  LaidAxis const log({.label = "a", .scale = Scale::log}, Values{50}, 0, 100, 5);
  CHECK_THAT(log.at(50), WithinAbs(50, 1e-9));
}

TEST_CASE("a plot has its title, labels, ticks and a legend with every series that has points", "[report][plot]") {
  std::string const svg =
      plot_svg(plot_of({{.name = "first", .x = {0, 1}, .y = {0, 10}},
                        {.name = "empty"},
                        {.name = "marks", .drawn = Drawn::points, .x = {0.5}, .y = {5}, .look = 0}}));
  for (std::string const word :
       {">title</text>", ">x</text>", ">y</text>", ">first</text>", ">marks</text>", ">10</text>"})
    CHECK_THAT(svg, ContainsSubstring(word));
  CHECK_THAT(svg, !ContainsSubstring(">empty</text>"));
  // in the middle of the frame, whose height is 300 pixels and begins at 44
  CHECK_THAT(mark_of(svg).second, WithinAbs(44 + 150, 0.1));
}

TEST_CASE("a plot is as wide as the longest name in its legend", "[report][plot]") {
  auto const width = [](std::string const& name) {
    std::smatch found;
    std::string const svg = plot_svg(plot_of({{.name = name, .x = {0, 1}, .y = {0, 10}}}));
    REQUIRE(std::regex_search(svg, found, std::regex("viewBox=\"0 0 ([0-9]+) ")));
    return std::stod(found[1]);
  };
  CHECK(width("short") == 760);
  CHECK(width(std::string(200, 'x')) > width_of(std::string(200, 'x')) * 12 / 13);
}

TEST_CASE("error bars reach from low to high", "[report][plot]") {
  Series series{.name = "a", .drawn = Drawn::points, .x = {1, 2}, .y = {5, 5}, .low = {0, 4}, .high = {10, 6}};
  std::string const svg = plot_svg(plot_of({series}));
  CHECK_THAT(svg, ContainsSubstring(",334.0V54.0M")); // the whole height but an inset of 10
  series.low.pop_back();
  CHECK_THAT(error_of(plot_of({series})), ContainsSubstring("1 low, 2 high"));
}

TEST_CASE("a plot without points says so", "[report][plot]") {
  for (Plot const& plot : {plot_of({}), plot_of({{.name = "empty"}}), plot_of({{.name = "empty"}}, Scale::log)}) {
    std::string const svg = plot_svg(plot);
    CHECK_THAT(svg, ContainsSubstring(">no data</text>"));
    CHECK_THAT(svg, !ContainsSubstring("nan"));
  }
  CHECK_THAT(plot_svg(BarPlot{.title = "t", .x = {}, .y = {}, .series = {}}), ContainsSubstring(">no data</text>"));
}

TEST_CASE("a number that an axis cannot show is refused with its series and place", "[report][plot]") {
  for (double const value : {not_a_number, std::numeric_limits<double>::infinity()}) {
    CHECK_THAT(error_of(plot_of({{.name = "bad", .x = {1, 2}, .y = {1, value}}})),
               ContainsSubstring("series \"bad\": y[1] is"));
    CHECK_THAT(error_of(plot_of({{.name = "bad", .x = {value}, .y = {1}}})), ContainsSubstring("x[0] is"));
  }
  CHECK_THAT(error_of(plot_of({{.name = "bad", .x = {1}, .y = {0}}}, Scale::log)), ContainsSubstring("y[0] is 0"));
  CHECK_THAT(error_of(plot_of({{.name = "bad", .x = {1, 2}, .y = {1}}})), ContainsSubstring("2 x, 1 y"));
  BarPlot bars{.title = "t", .x = {.categories = {"a"}}, .y = {}, .series = {{"bad", {-1}}}};
  CHECK_THROWS_AS(plot_svg(bars), Error);
  bars.series[0].values = {not_a_number};
  CHECK_THROWS_AS(plot_svg(bars), Error);
  bars.series[0].values = {1, 2};
  CHECK_THROWS_AS(plot_svg(bars), Error);
}

TEST_CASE("bars pile up to their sum or stand side by side", "[report][plot]") {
  BarPlot plot{.title = "t",
               .x = {.categories = {"one", "two"}},
               .y = {},
               .series = {{"a", {1, 2}, 0}, {"b", {3, 0}, 3}},
               .stacked = true};
  std::regex const bar("y=\"([.0-9]+)\" width=\"([.0-9]+)\" height=\"([.0-9]+)\" fill=\"#(0072b2|cc79a7)\"");
  auto const bars_of = [&](std::string const& svg) {
    std::vector<std::pair<double, double>> bars; // top, height
    for (std::sregex_iterator at(svg.begin(), svg.end(), bar), end; at != end; ++at)
      bars.emplace_back(std::stod((*at)[1]), std::stod((*at)[3]));
    return bars;
  };
  auto bars = bars_of(plot_svg(plot));
  REQUIRE(bars.size() == 3 + 2);                         // the one of height 0 is not drawn; two in the legend
  CHECK_THAT(bars[0].second, WithinAbs(290.0 / 4, 0.1)); // a of one: 1 of at most 4
  CHECK_THAT(bars[1].second, WithinAbs(290.0 / 2, 0.1));
  CHECK_THAT(bars[2].first + bars[2].second, WithinAbs(bars[0].first, 0.2)); // b of one stands on a
  plot.stacked = false;
  bars = bars_of(plot_svg(plot));
  CHECK_THAT(bars[2].second, WithinAbs(290, 0.1)); // b of one is the largest
  CHECK_THAT(bars[2].first + bars[2].second, WithinAbs(344, 0.1));
}

TEST_CASE("names are escaped in every text of a plot", "[report][plot]") {
  Plot plot = plot_of({{.name = "<b> & \"c\"", .x = {1}, .y = {1}}});
  plot.title = "a<b";
  plot.x.label = std::string("bell\x07");
  std::string const svg = plot_svg(plot);
  CHECK_THAT(svg, ContainsSubstring("&lt;b&gt; &amp; &quot;c&quot;</text>"));
  CHECK(occurrences(svg, "a&lt;b") == 2);
  CHECK_THAT(svg, ContainsSubstring("bell?"));
  CHECK_THAT(svg, !ContainsSubstring("<b>"));
}

TEST_CASE("a thinned line keeps first, least, largest and last of each part", "[report][plot]") {
  Series series{.name = "a"};
  for (int i = 0; i < 1000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 333 ? 99 : i == 334 ? -99 : std::sin(i));
  }
  Series const thin = thinned(series, 10);
  CHECK(thin.x.size() <= 40);
  CHECK(thin.x.size() == thin.y.size());
  CHECK(thin.x.front() == 0);
  CHECK(thin.x.back() == 999);
  CHECK(std::is_sorted(thin.x.begin(), thin.x.end()));
  for (double const kept : {333.0, 334.0}) CHECK(std::find(thin.x.begin(), thin.x.end(), kept) != thin.x.end());
  CHECK(thinned(series, 250).x == series.x);
}
