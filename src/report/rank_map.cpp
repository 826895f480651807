#include "report/rank_map.hpp"

#include <fmt/format.h>

#include <set>
#include <sstream>

namespace trainstone {

namespace {

std::string range_text(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
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
    std::istringstream ranges(place.cores);
    for (std::string range; std::getline(ranges, range, ',');) {
      std::size_t const dash = range.find('-');
      std::int64_t const first = std::stoll(range);
      std::int64_t const last = dash == std::string::npos ? first : std::stoll(range.substr(dash + 1));
      for (std::int64_t core = first; core <= last; ++core) cores.insert(core);
    }
  }
  return std::ssize(cores);
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
