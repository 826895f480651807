#include "report/trace.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace trainstone;

namespace {

std::vector<TimelineEvent> const events{{Lane::collective, "all_reduce ring, 8 bytes", 500, 7000},
                                        {Lane::compute, "backward \"block 0\"", 1000, 2500},
                                        {Lane::compute, "backward", 0, 3000},
                                        {Lane::wait, "all_reduce ring, 8 bytes", 3000, 7500}};

nlohmann::json parsed(std::vector<std::string> const& ranks) { return nlohmann::json::parse(trace_json(ranks)); }

} // namespace

TEST_CASE("a trace is a JSON array of the events of all ranks", "[trace]") {
  nlohmann::json const trace = parsed({trace_events(0, events), trace_events(1, {})});
  REQUIRE(trace.size() == 4 + 5 + 4); // names of a process and three lanes each; a collective has two edges
  CHECK(trace[0] == nlohmann::json::parse(R"({"name": "process_name", "ph": "M", "pid": 0, "tid": 0,
                                              "args": {"name": "rank 0"}})"));
  CHECK(trace[3]["args"]["name"] == "communication");
  CHECK(trace[5] == nlohmann::json::parse(R"({"name": "all_reduce ring, 8 bytes", "cat": "communication", "ph": "e",
                                              "ts": 7.0, "pid": 0, "tid": 2, "id": "0.0"})"));
  CHECK(trace[6] == nlohmann::json::parse(R"({"name": "backward \"block 0\"", "cat": "compute", "ph": "X", "ts": 1.0,
                                              "pid": 0, "tid": 0, "dur": 1.5})"));
  CHECK(trace[8]["tid"] == 1);
  CHECK(trace[9]["pid"] == 1);
}

TEST_CASE("collectives of all ranks can be told apart", "[trace]") {
  std::vector<TimelineEvent> const two(2, events[0]);
  nlohmann::json const trace = parsed({trace_events(0, two), trace_events(1, two)});
  std::vector<std::string> begun, ended;
  for (nlohmann::json const& event : trace) {
    if (event["ph"] == "b") begun.push_back(event["id"]);
    if (event["ph"] == "e") ended.push_back(event["id"]);
  }
  CHECK(begun == std::vector<std::string>{"0.0", "0.1", "1.0", "1.1"});
  CHECK(ended == begun);
}
