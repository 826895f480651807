#include "report/rank_map.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

TEST_CASE("numbers are told as ranges", "[rank_map]") {
  CHECK(number_ranges({}).empty());
  CHECK(number_ranges({7}) == "7");
  CHECK(number_ranges({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11");
}

TEST_CASE("cores that several ranks may run on are counted once", "[rank_map]") {
  auto const places = [](std::vector<std::string> const& cores) {
    std::vector<RankPlace> all;
    for (std::string const& of_rank : cores) all.push_back({"n1", of_rank, ""});
    return all;
  };
  CHECK(count_cores(places({"5"})) == 1);
  CHECK(count_cores(places({"0-3,8", "3-4"})) == 6);
  CHECK(count_cores(places({"0,2", "0,2"})) == 2);
}

TEST_CASE("ranks at the same place share a line of the map", "[rank_map]") {
  RankPlace const a{"n1", "0-1", ""}, b{"n2", "0-1", ""}, gpu{"n2", "0-1", "0000:81:00.0"};
  CHECK(rank_map_lines({}).empty());
  CHECK(rank_map_lines({a}) == "rank 0 on n1, cores 0-1\n");
  CHECK(rank_map_lines({a, a, b, gpu, gpu}) == "ranks 0-1 on n1, cores 0-1\n"
                                               "rank 2 on n2, cores 0-1\n"
                                               "ranks 3-4 on n2, cores 0-1, device 0000:81:00.0\n");
  CHECK(rank_map_lines({a, b, a, b, b}, 2) == "rank 0 on n1, cores 0-1\n"
                                              "rank 1 on n2, cores 0-1\n"
                                              "ranks 2-4: see result.json\n");
}
