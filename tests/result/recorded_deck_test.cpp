// The deck of a run, read back from its result.

#include "result/recorded_deck.hpp"

#include "deck/schema.hpp"
#include "support/deck_fixture.hpp"
#include "support/result_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

ResultFile file_of(Deck const& deck, std::int64_t ranks) {
  Result run = run_of(Outcome::valid, ranks, 1000);
  run.parameters = resolved_parameters(deck, ranks);
  return read_back(json_of(run));
}

std::string error_with(std::string const& key, std::string const& value) {
  ResultFile file = file_of(read_small(), 2);
  file.deck_values[key] = value;
  return input_error_of([&] { recorded_deck(file); });
}

} // namespace

TEST_CASE("the deck of a run has all its values again, of every type", "[result][recorded_deck]") {
  for (std::vector<std::string> const& overrides : std::vector<std::vector<std::string>>{
           {},
           {"parallel.strategy=zero", "parallel.zero_stage=3", "parallel.prefetch=2", "trace.file=a \"b\".json"},
           {"comm.emulated_nodes=2", "comm.emulated_network.latency=50 us", "comm.emulated_network.bandwidth=1 GB/s"},
           {"optimizer.betas=[0.8, 0.95]", "parallel.bucket=\"3 MiB\"", "parallel.overlap=false",
            "optimizer.lr=1e-3"}}) {
    Deck const deck = read_small(overrides);
    Deck const again = recorded_deck(file_of(deck, 2));
    RunConfig const wanted = resolve(deck, 2), found = resolve(again, 2);
    for (Parameter const& one : resolved_parameters(deck, 2)) {
      if (one.key == "data.files") continue; // are relative to the deck
      INFO(one.key);
      Key const& key = *find_key(one.key);
      CHECK(key.get(found) == key.get(wanted));
    }
  }
}

TEST_CASE("values that no deck of this program has are refused with the file and the key", "[result][recorded_deck]") {
  CHECK_THAT(error_with("parallel.colour", "\"red\""),
             ContainsSubstring("a.json: was written by another version: this one has no key parallel.colour"));
  CHECK_THAT(error_with("batch.micro", "\"two\""),
             ContainsSubstring("a.json: batch.micro is \"two\", must be an integer"));
  CHECK_THAT(error_with("parallel.zero_stage", "7"), ContainsSubstring("a.json: parallel.zero_stage = 7"));
  CHECK_THAT(error_with("model.heads", "5"), ContainsSubstring("a.json: model.heads = 5"));
}
