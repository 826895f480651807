#include "deck/benchmark_class.hpp"

#include "result/golden.hpp"
#include "support/deck_fixture.hpp"
#include "support/fixtures.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string const tiny = "class = \"tiny\"\n";

std::string origin(Deck const& deck, std::string const& key) { return to_string(deck.origins.at(key)); }

/// What a deck of class tiny counts as with these overrides, on one rank.
ClassJudgement judge_tiny(std::vector<std::string> const& overrides) {
  return judge_class(read_text(tiny, overrides), 1);
}

/// What a whole run of it counts as.
ClassJudgement judge_tiny_run(std::vector<std::string> const& overrides, std::string const& sharing_ranks = "",
                              std::int64_t ranks = 1) {
  Deck const deck = read_text(tiny, overrides);
  return judge_run(deck, ranks, {measured_window(deck, deck.config.length.steps), sharing_ranks});
}

} // namespace

TEST_CASE("every class is a whole deck, and a run of it counts as of the class", "[class]") {
  for (char const* name : {"tiny", "small", "reference", "large"}) {
    INFO(name);
    Deck const deck = read_text(std::string("class = \"") + name + "\"\n");
    for (std::int64_t const ranks : {1, 2, 16}) {
      ClassJudgement const judgement = judge_class(deck, ranks);
      CHECK(judgement.name == name);
      CHECK(judgement.departures.empty());
    }
    CHECK(deck_hash(read_text(print_deck(deck))) == deck_hash(deck));
    CHECK(judge_class(read_text(print_deck(deck)), 1).name == name);
  }
}

TEST_CASE("a class stands above defaults and below deck, environment and command line", "[class]") {
  Deck const deck = read_text(tiny + "[data]\nseed = 3\n", {"optimizer.lr=0.5"}, "optimizer.warmup=7");
  CHECK(deck.config.model == GptConfig{4, 4, 128, 128, 256});
  CHECK(origin(deck, "model.layers") == "class tiny");
  CHECK(origin(deck, "class") == "deck:1");
  CHECK(deck.config.data.seed == 3);
  CHECK(origin(deck, "data.seed") == "deck:3");
  CHECK(deck.config.schedule.warmup == 7);
  CHECK(origin(deck, "optimizer.warmup") == "environment");
  CHECK(deck.config.optimizer.learning_rate == 0.5);
  CHECK(origin(deck, "optimizer.lr") == "command line");
  CHECK(origin(deck, "optimizer.eps") == "default");
  CHECK_THAT(print_deck(deck),
             ContainsSubstring("\nclass = \"tiny\"                           # deck:1\n\n[model]\n") &&
                 ContainsSubstring("\nlayers = 4                               # class tiny\n"));
  CHECK(read_text(tiny, {"class=small"}).config.model.channels == 768);
  CHECK(origin(read_text("", {}, "class=small"), "data.steps") == "class small");
}

TEST_CASE("what a deck replaces of a class takes what belongs to it along", "[class]") {
  Deck const preset = read_text(tiny, {"model.preset=gpt2"});
  CHECK(preset.config.model == GptConfig{12, 12, 768, 1024, 50257});
  CHECK(origin(preset, "model.layers") == "preset gpt2");
  Deck const micro = read_text(tiny, {"batch.micro=2"});
  CHECK(resolve(micro, 2).batch == BatchConfig{2, 4, 16});
  CHECK(resolve(read_text("class = \"large\"\n", {"batch.accumulation=2"}), 8).batch == BatchConfig{64, 2, 1024});
  CHECK(read_text(tiny, {"data.source=synthetic"}).config.data.files.empty());
  CHECK(read_text(tiny, {"data.epochs=1"}).config.length.steps == 0);
  CHECK(read_text(tiny, {"optimizer.type=sgd"}).config.optimizer.type == OptimizerType::sgd);
}

TEST_CASE("what is free leaves the class as it is", "[class]") {
  for (char const* change : {"batch.micro=4", "parallel.strategy=naive", "parallel.bucket=1 MiB", "comm.allreduce=tree",
                             "kernels.gemm=kokkos", "model.attention=flash", "bench.warmup_steps=11",
                             "bench.warmup_steps=155", "bench.window=145", "checkpoint.dir=kept", "trace.file=t.json",
                             "data.files=[\"elsewhere.txt\"]", "data.validate_every=0", "optimizer.lr=0.002"}) {
    INFO(change);
    CHECK(judge_tiny_run({change}).name == "tiny");
    CHECK(judge_tiny_run({change}).departures.empty());
  }
  for (std::string const provider : {"tensor_cores", "cudnn"})
    CHECK(judge_tiny_run({"model.attention=flash", "kernels.attention=" + provider}).name == "tiny");
}

TEST_CASE("a run whose rate breaks the run rules is custom and says which", "[class]") {
  using Strings = std::vector<std::string>;
  auto const departures = [](std::string const& change) {
    CHECK(judge_tiny({change}).name == "tiny"); // it is the class' work
    ClassJudgement const judgement = judge_tiny_run({change});
    CHECK(judgement.name == "custom");
    return judgement.departures;
  };
  CHECK(departures("bench.warmup_steps=9") == Strings{"bench.warmup_steps = 9 instead of at least 10"});
  CHECK(departures("bench.window=144") == Strings{"144 measured steps instead of at least 145"});
  CHECK(departures("bench.warmup_steps=156") == Strings{"144 measured steps instead of at least 145"});
  CHECK(departures("bench.kernels=true") == Strings{"bench.kernels = true instead of false"});
  CHECK(judge_tiny_run({"parallel.pipeline=2", "bench.pipeline=true"}, "", 2).departures ==
        Strings{"bench.pipeline = true instead of false"});
  CHECK(departures("comm.check_order=true") == Strings{"comm.check_order = true instead of false"});
  CHECK(judge_tiny_run({}, "2 ranks share a device").departures == Strings{"2 ranks share a device"});
  CHECK(judge_tiny_run({}, "2 ranks share a device").name == "custom");
  CHECK(judge_tiny_run({"data.seed=2", "bench.kernels=true"}).departures.size() == 2);
}

TEST_CASE("the last piece of a restarted run keeps the window's rule, or is custom", "[class]") {
  Deck const deck = read_text(tiny);
  auto const resumed_after = [&](std::int64_t step) { return judge_run(deck, 1, {measured_window(deck, 300, step)}); };
  CHECK(resumed_after(145).name == "tiny"); // 145 steps of 290 are left
  CHECK(resumed_after(146).name == "custom");
  CHECK(resumed_after(300).departures == std::vector<std::string>{"0 measured steps instead of at least 145"});
}

TEST_CASE("a golden first update alone proves the classes that are too large for a curve, and no other run",
          "[class]") {
  for (std::string const name : {"tiny", "small", "reference", "large", "custom"}) {
    INFO(name);
    CHECK(is_referenced(name, true, false));
    CHECK(is_referenced(name, true, true));
    CHECK(!is_referenced(name, false, false));
    CHECK(is_referenced(name, false, true) == (name == "reference" || name == "large"));
  }
}

TEST_CASE("the deck of every class has a reference that can make a run of it VALID", "[class]") {
  for (std::string const name : {"tiny", "small", "reference", "large"}) {
    INFO(name);
    std::string const path = inputs_folder() / (name + ".toml");
    Deck const deck = read_deck({path, {}, {}});
    std::string const key = golden_key(deck, 1), file = golden_path(deck.path);
    auto const curve = find_golden_curve(file, key);
    auto const first = find_golden_first_step(file, key);
    CHECK(is_referenced(name, curve.has_value(), first && first->update));
    if (first) CHECK(first->positions >= deck.config.batch.global); // every sample counts some of them
    if (curve) CHECK(std::ssize(curve->losses) == deck.config.length.steps);
  }
}

TEST_CASE("a key that a class fixes makes a run custom and is named with both values", "[class]") {
  using Strings = std::vector<std::string>;
  auto const departures = [](std::string const& change) { return judge_tiny({change}).departures; };
  CHECK(departures("data.steps=50") == Strings{"data.steps = 50 instead of 300"});
  CHECK(departures("optimizer.lr=1e-3") == Strings{"optimizer.lr = 0.001 instead of 0.002"});
  CHECK(departures("batch.global=8") == Strings{"batch.global = 8 instead of 16"});
  CHECK(departures("model.heads=2") == Strings{"model.heads = 2 instead of 4"});
  CHECK(departures("precision.recipe=mixed16") == Strings{"precision.recipe = \"mixed16\" instead of \"fp32\""});
  CHECK(departures("optimizer.type=adam") == Strings{"optimizer.type = \"adam\" instead of \"adamw\""});
  CHECK(departures("data.xxhash=\"\"") == Strings{"data.xxhash = \"\" instead of \"0e1b8ba63f05856f\""});
  CHECK(departures("data.sequence=64") == Strings{"data.sequence = 64 instead of 128"});
  CHECK(departures("model.dropout=0.1") == Strings{"model.dropout = 0.1 instead of 0"});
  CHECK(departures("model.load=m.bin") == Strings{"model.load = \"m.bin\" instead of \"\""});
  CHECK(judge_tiny({"data.steps=50"}).name == "custom");
  CHECK(judge_tiny({"data.steps=50", "data.seed=2"}).departures.size() == 2);
}

TEST_CASE("a run is of its class if and only if it has the class' golden key", "[class]") {
  std::string const key = golden_key(read_text(tiny), 1);
  for (char const* change : {"data.steps=50", "batch.micro=4", "optimizer.eps=1e-7", "optimizer.final_lr_fraction=0.2",
                             "data.validation_fraction=0.1", "optimizer.clip=0", "parallel.granularity=step",
                             "precision.recipe=mixed20", "optimizer.type=sgd", "data.stop_loss=1", "data.seed=1"}) {
    INFO(change);
    Deck const deck = read_text(tiny, {change});
    CHECK((judge_class(deck, 1).name == "tiny") == (golden_key(deck, 1) == key));
  }
}

TEST_CASE("workers that do not wait for each other make no run of a class", "[class][servers]") {
  Deck const sync = read_text(tiny, {"parallel.strategy=parameter_server"}),
             async = read_text(tiny, {"parallel.strategy=parameter_server", "server.mode=async"});
  CHECK(judge_class(sync, 2).name == "tiny");
  CHECK(judge_class(async, 2).name == "custom");
  CHECK(judge_class(async, 2).departures == std::vector<std::string>{"server.mode = \"async\" instead of \"sync\""});
}

TEST_CASE("a deck without a class, or of class custom, is custom without departures", "[class]") {
  for (Deck const& deck : {read_small(), read_small({"class=custom"})}) {
    CHECK(judge_class(deck, 1).name == "custom");
    CHECK(judge_class(deck, 1).departures.empty());
    CHECK(judge_run(deck, 1, {{3, 3}, "2 ranks share a device"}).departures.empty());
  }
  CHECK_THAT(error_of("class = \"huge\"\n"),
             ContainsSubstring("class = \"huge\" is unknown, must be one of tiny, small, reference, large, custom"));
  CHECK_THAT(error_of("class = 3\n"), ContainsSubstring("class is an integer, must be a string"));
}

TEST_CASE("a value of a class that does not fit is named with the class", "[class]") {
  CHECK_THAT(input_error_of([] { resolve(read_text(tiny), 3); }),
             ContainsSubstring("batch.global = 16 is no multiple of 3"));
}
