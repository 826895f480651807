#include "result/trace.hpp"

#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>

using namespace trainstone;

namespace {

using Events = std::vector<TimelineEvent>;

Events const events{{Lane::collective, "all_reduce ring, 8 bytes", 500, 7000},
                    {Lane::compute, "backward \"block 0\"", 1000, 2500},
                    {Lane::compute, "backward", 0, 3000},
                    {Lane::wait, "all_reduce ring, 8 bytes", 3000, 7500}};

TraceText text_of(std::int64_t rank, Events const& some) {
  return {rank, "rank " + std::to_string(rank), "0123456789abcdef", some.size(),
          [&some](std::size_t i) { return some.at(i); }};
}

/// The file of these ranks, read back.
nlohmann::json trace_of(std::vector<Events> const& ranks) {
  test::TemporaryFolder const folder;
  std::string const path = folder.path() + "/trace.json";
  TraceFile file(path);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    TraceText text = text_of(static_cast<std::int64_t>(rank), ranks[rank]);
    for (std::string piece = text.next(); !piece.empty(); piece = text.next()) file.add(piece);
  }
  file.finish();
  std::ifstream stream(path);
  return nlohmann::json::parse(stream);
}

} // namespace

TEST_CASE("a trace is a JSON array of the events of all ranks", "[trace]") {
  nlohmann::json const trace = trace_of({events, {}});
  REQUIRE(trace.size() == 7 + 5 + 7); // names of a process, its deck and five lanes; a collective has two edges
  CHECK(trace[0] == nlohmann::json::parse(R"({"name": "process_name", "ph": "M", "pid": 0, "tid": 0,
                                              "args": {"name": "rank 0"}})"));
  CHECK(trace[1] == nlohmann::json::parse(R"({"name": "process_labels", "ph": "M", "pid": 0, "tid": 0,
                                              "args": {"labels": "deck 0123456789abcdef",
                                                       "deck_hash": "0123456789abcdef"}})"));
  CHECK(trace[4]["args"]["name"] == "communication");
  CHECK(trace[8] == nlohmann::json::parse(R"({"name": "all_reduce ring, 8 bytes", "cat": "communication", "ph": "e",
                                              "ts": 7.0, "pid": 0, "tid": 2, "id": "0.0"})"));
  CHECK(trace[9] == nlohmann::json::parse(R"({"name": "backward \"block 0\"", "cat": "compute", "ph": "X", "ts": 1.0,
                                              "pid": 0, "tid": 0, "dur": 1.5})"));
  CHECK(trace[11]["tid"] == 1);
  CHECK(trace[12]["pid"] == 1);
}

TEST_CASE("collectives of all ranks can be told apart", "[trace]") {
  Events const two(2, events[0]);
  nlohmann::json const trace = trace_of({two, two});
  std::vector<std::string> begun, ended;
  for (nlohmann::json const& event : trace) {
    if (event["ph"] == "b") begun.push_back(event["id"]);
    if (event["ph"] == "e") ended.push_back(event["id"]);
  }
  CHECK(begun == std::vector<std::string>{"0.0", "0.1", "1.0", "1.1"});
  CHECK(ended == begun);
}

TEST_CASE("uses of slots may overlap, and lie in a lane of their own", "[trace]") {
  Events const two{{Lane::slot, "slot 0: micro-batch 0", 0, 2000}, {Lane::slot, "slot 1: micro-batch 1", 1000, 3000}};
  nlohmann::json const trace = trace_of({two});
  CHECK(trace[5] == nlohmann::json::parse(R"({"name": "thread_name", "ph": "M", "pid": 0, "tid": 3,
                                              "args": {"name": "activations"}})"));
  CHECK(trace[9] == nlohmann::json::parse(R"({"name": "slot 1: micro-batch 1", "cat": "activations", "ph": "b",
                                              "ts": 1.0, "pid": 0, "tid": 3, "id": "0.1"})"));
  CHECK(trace[10]["ph"] == "e");
}

TEST_CASE("however many events there are, a piece is small and none is lost", "[trace]") {
  Events many;
  for (std::int64_t i = 0; i < 10000; ++i) many.push_back({Lane::compute, "trainstone::model::forward", i, i + 1});
  std::size_t longest = 0, pieces = 0;
  TraceText text = text_of(3, many);
  for (std::string piece = text.next(); !piece.empty(); piece = text.next()) {
    longest = std::max(longest, piece.size());
    ++pieces;
  }
  CHECK(pieces == 3);
  CHECK(longest < std::size_t{1} << 20);
  CHECK(text.next().empty());
  nlohmann::json const trace = trace_of({many, many});
  REQUIRE(trace.size() == 2 * (7 + many.size()));
  for (std::size_t i = 0; i < many.size(); ++i) REQUIRE(trace[7 + i]["ts"] == static_cast<double>(i) / 1e3);
}

TEST_CASE("a trace that is not finished leaves nothing", "[trace]") {
  test::TemporaryFolder const folder;
  {
    TraceFile(folder.path() + "/trace.json").add("{}");
  }
  CHECK(folder.files().empty());
}
