#include "result/rank_map.hpp"

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
  CHECK(count_cores(places({"0-2047"})) == 2048);
  CHECK(count_cores(places({"0", "unknown"})) > 1000000);
  for (char const* text :
       {"", ",", "-", "0-", "-1", "0x", "0,,1", " 0", "1e3", "0-9223372036854775807", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(count_cores(places({"0", text})) > 1000000);
  }
}

TEST_CASE("ranks of the fullest device are counted, on each host by themselves", "[rank_map]") {
  CHECK(ranks_per_device({}) == 0);
  CHECK(ranks_per_device({{"n1", "0", ""}, {"n1", "1", ""}}) == 0);
  CHECK(ranks_per_device({{"n1", "0", "a"}, {"n1", "0", "b"}, {"n2", "0", "a"}, {"n2", "0", "b"}}) == 1);
  CHECK(ranks_per_device({{"n1", "0", "a"}, {"n2", "0", "a"}, {"n2", "0", "b"}, {"n2", "0", "b"}, {"n2", "0", "b"}}) ==
        3);
}

TEST_CASE("threads that share cores are told, of the host with most for a core", "[rank_map]") {
  RankPlace const low{"n1", "0", ""}, high{"n1", "1", ""}, both{"n1", "0-1", ""}, other{"n2", "0-1", ""};
  CHECK(shared_cores({}, 1).empty());
  CHECK(shared_cores({low, high}, 1).empty());
  CHECK(shared_cores({both, both}, 1).empty());
  CHECK(shared_cores({low, low}, 1) == "2 threads on 1 core");
  CHECK(shared_cores({low, high}, 2) == "4 threads on 2 cores");
  CHECK(shared_cores({both, both, other, other, other, other, other}, 1) == "5 threads on 2 cores");
  CHECK(shared_cores({both, both, both, other, other}, 1) == "3 threads on 2 cores");
  CHECK(shared_cores({low, {"n1", "unknown", ""}}, 4).empty());
  CHECK(shared_cores({{"n1", "0", "a"}, {"n1", "0", "a"}}, 1).empty());
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
