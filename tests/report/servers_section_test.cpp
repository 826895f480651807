// What a report says of workers that did not wait for each other, and the form of it in a result file.

#include "report/servers_section.hpp"

#include "core/error.hpp"
#include "result/json_file.hpp"
#include "result/servers_info.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace trainstone;

namespace {

using Json = nlohmann::ordered_json;

/// Of two workers: worker 1 pushes once, with a staleness of 2.
ServersInfo made_up() {
  ServerRecord const first{{{true, 0}, {true, 1}, {false, 0}, {true, 0}}, {{.worker = 0, .clock = 0, .waited = 0.25}}},
      second{{{false, 0}, {false, 1}},
             {{.worker = 0, .clock = 1, .gap = 1, .waited = 0.5},
              {.worker = 1, .clock = 0, .staleness = 2, .waited = 0.1}}};
  ServersInfo info = servers_info({.workers = 2, .threshold = 1, .pushes = 3}, {first, second});
  info.order = "arrival";
  info.parameter_hash = "00000000000000ff";
  return info;
}

Json changed(std::string const& pointer, Json const& value) {
  Json json{{"servers", servers_json(made_up())}};
  json[Json::json_pointer(pointer)] = value;
  return json;
}

} // namespace

TEST_CASE("lines of workers and servers", "[report][servers]") {
  CHECK(
      servers_lines(made_up()) ==
      "servers: bounded, s = 1, order of arrival; 3 pushes; staleness mean 0.67, at most 2 (bound 3); gap of clocks at "
      "most 1 (bound 1)\n"
      "  pushes by staleness 0: 2 2: 1\n"
      "  pushes by worker 2 1\n"
      "  waited in this run 750 ms, 100 ms\n");
}

TEST_CASE("the record of servers is read as it was written, and wrong ones are refused", "[result][servers]") {
  ServersInfo const info = made_up();
  Json const json{{"servers", servers_json(info)}};
  CHECK(json["servers"]["acts"] == Json{1, 3, 0, 1, 0, 2});
  CHECK(json["servers"]["staleness_bound"] == 3);
  std::optional<ServersInfo> const read = read_servers(JsonFile("r.json", "", json));
  REQUIRE(read);
  CHECK(servers_json(*read) == json["servers"]);
  CHECK(read->acts == info.acts);
  CHECK(read->workers == info.workers);
  CHECK_FALSE(read_servers(JsonFile("r.json", "", Json::object())));
  CHECK_THROWS_AS(read_servers(JsonFile("r.json", "", changed("/servers/acts/0", 4))), InputError);
  CHECK_THROWS_AS(read_servers(JsonFile("r.json", "", changed("/servers/acts/0", -1))), InputError);
  CHECK_THROWS_AS(read_servers(JsonFile("r.json", "", changed("/servers/workers", Json::array()))), InputError);
  CHECK_THROWS_AS(read_servers(JsonFile("r.json", "", changed("/servers/order", 1))), InputError);
}
