#include "result/rank_map.hpp"

#include "core/plural.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>

namespace trainstone {

namespace {

std::string range_text(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

constexpr std::int64_t most_cores = std::int64_t{1} << 20; // a damaged file may say any number

std::optional<std::int64_t> core_number(std::string const& text) {
  std::int64_t number = -1;
  char const* const end = text.data() + text.size();
  auto const [last, error] = std::from_chars(text.data(), end, number);
  bool const is_core = error == std::errc() && last == end && number >= 0 && number < most_cores;
  return is_core ? std::optional(number) : std::nullopt;
}

/// The inverse of number_ranges(); nothing for another text.
std::optional<std::set<std::int64_t>> cores_of(std::string const& text) {
  std::set<std::int64_t> cores;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    std::size_t const dash = range.find('-');
    auto const first = core_number(range.substr(0, dash));
    auto const last = dash == std::string::npos ? first : core_number(range.substr(dash + 1));
    if (!first || !last) return std::nullopt;
    for (std::int64_t core = *first; core <= *last; ++core) cores.insert(core);
  }
  return cores.empty() ? std::nullopt : std::optional(cores);
}

} // namespace

std::string number_ranges(std::vector<std::int64_t> const& numbers) {
  std::string text;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + range_text(numbers[begin], numbers[end - 1]);
    begin = end;
  }
  return text;
}

std::int64_t count_cores(std::vector<RankPlace> const& places) {
  std::set<std::int64_t> cores;
  for (RankPlace const& place : places) {
    auto const of_place = cores_of(place.cores);
    if (!of_place) return std::numeric_limits<std::int64_t>::max();
    cores.insert(of_place->begin(), of_place->end());
  }
  return std::ssize(cores);
}

std::int64_t ranks_per_device(std::vector<RankPlace> const& places) {
  std::map<std::pair<std::string, std::string>, std::int64_t> ranks;
  std::int64_t most = 0;
  for (RankPlace const& place : places)
    if (!place.device.empty()) most = std::max(most, ++ranks[{place.host, place.device}]);
  return most;
}

std::string shared_cores(std::vector<RankPlace> const& places, std::int64_t threads_per_rank) {
  if (ranks_per_device(places) > 0) return "";
  std::map<std::string, std::vector<RankPlace>> hosts;
  for (RankPlace const& place : places) hosts[place.host].push_back(place);
  double most = 1;
  std::string text;
  for (auto const& [host, of_host] : hosts) {
    double const threads = static_cast<double>(of_host.size()) * static_cast<double>(threads_per_rank);
    std::int64_t const cores = count_cores(of_host);
    double const per_core = threads / static_cast<double>(cores);
    if (per_core <= most) continue;
    most = per_core;
    text = fmt::format("{:g} threads on {}", threads, plural(cores, "core"));
  }
  return text;
}

std::string rank_map_lines(std::vector<RankPlace> const& places, std::size_t most) {
  std::string text;
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < places.size();) {
    std::size_t end = begin + 1;
    while (end < places.size() && places[end] == places[begin]) ++end;
    if (lines++ == most) return text + fmt::format("ranks {}-{}: see result.json\n", begin, places.size() - 1);
    auto const& [host, cores, device] = places[begin];
    text += fmt::format("{} {} on {}, cores {}{}\n", end - begin == 1 ? "rank" : "ranks",
                        range_text(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end) - 1), host, cores,
                        device.empty() ? "" : ", device " + device);
    begin = end;
  }
  return text;
}

} // namespace trainstone
