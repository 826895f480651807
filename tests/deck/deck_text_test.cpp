#include "deck/schema.hpp"
#include "support/deck_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <regex>
#include <set>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Matches;

TEST_CASE("the help shows type, default and meaning of every key", "[deck]") {
  std::string const help = help_deck();
  for (Key const& key : deck_keys()) {
    CHECK_THAT(help, ContainsSubstring("  " + key.name + " "));
    CHECK_THAT(help, ContainsSubstring(key.meaning));
    CHECK(!key.meaning.empty());
  }
  CHECK_THAT(help, ContainsSubstring(
                       "comm.emulated_network.latency a time with its unit (ns, us, ms, s, min, h); default \"0 s\"; "
                       "0 s to 1 min\n"));
  CHECK_THAT(help,
             ContainsSubstring("optimizer.schedule           a string; default \"cosine\"; one of constant, cosine"));
  CHECK_THAT(help, ContainsSubstring("batch.micro                  an integer (samples); default 0; 0 to 1000000"));
}

TEST_CASE("every key exists once and its default is legal", "[deck]") {
  std::set<std::string> names;
  for (Key const& key : deck_keys()) {
    CHECK(names.insert(key.name).second);
    std::optional<std::string> const problem = find_problem(key, key.default_value());
    CHECK(problem.value_or("") == "");
  }
}

TEST_CASE("every key stores what it is given", "[deck]") {
  for (Key const& key : deck_keys()) {
    RunConfig config;
    DeckValue value = key.default_value();
    if (auto* integer = std::get_if<std::int64_t>(&value)) *integer += 1;
    if (auto* number = std::get_if<double>(&value)) *number += 0.125;
    if (auto* yes = std::get_if<bool>(&value)) *yes = !*yes;
    if (auto* text = std::get_if<std::string>(&value)) *text = key.choices.empty() ? "x" : key.choices.back();
    if (auto* quantity = std::get_if<Quantity>(&value)) quantity->value += 1;
    if (auto* numbers = std::get_if<std::vector<double>>(&value))
      for (double& one : *numbers) one += 1;
    if (auto* texts = std::get_if<std::vector<std::string>>(&value))
      *texts = key.takes_integers    ? std::vector<std::string>{"3", "0"}
               : key.choices.empty() ? std::vector<std::string>{"x", "y"}
                                     : key.choices;
    key.set(config, value);
    CHECK(key.get(config) == value);
  }
}

TEST_CASE("the resolved deck reads back as the same deck", "[deck]") {
  Deck const deck = read_small({"optimizer.lr=0.0003",
                                "optimizer.eps=1e-8",
                                "model.save=\"quo\\\"te\\\\ \\n\"",
                                "optimizer.betas=[0.1, 0.95]",
                                "data.files=[\"a.txt\", \"b c.txt\"]",
                                "faults.nan.step=3",
                                "faults.nan.unit=mlp 1",
                                "comm.check_order=true",
                                "faults.delay.where=send",
                                "faults.delay.time=2 ms",
                                "faults.delay.rank=0",
                                "faults.slow.kernel=norm",
                                "faults.slow.factor=1.5",
                                "faults.extra_message=true",
                                "comm.emulated_network.latency=0.7 ms",
                                "comm.emulated_network.bandwidth=1.3 GiB/s",
                                "trace.file=trace.json",
                                "faults.pace.forward=2 ms",
                                "faults.pace.backward=4 ms",
                                "faults.straggler.rank=0",
                                "faults.straggler.factor=3",
                                "memory.recompute=[\"none\", \"full\"]",
                                "parallel.pipeline=3",
                                "parallel.stages=[2, 1, 0]"});
  Deck const again = read_text(print_deck(deck));
  CHECK(deck_hash(again) == deck_hash(deck));
  for (Key const& key : deck_keys()) {
    INFO(key.name);
    CHECK(key.get(again.config) == key.get(deck.config));
  }
}

TEST_CASE("the resolved deck of a preset reads back as the same deck", "[deck]") {
  Deck const deck = read_text("[model]\npreset = \"gpt2-xl\"\n[data]\nsource = \"synthetic\"\nepochs = 0\nsteps = 1\n");
  CHECK(deck_hash(read_text(print_deck(deck))) == deck_hash(deck));
}

TEST_CASE("the resolved deck of each optimizer reads back as the same deck", "[deck]") {
  for (char const* type : {"adamw", "adam", "sgd"}) {
    INFO(type);
    Deck const deck = read_small({std::string("optimizer.type=") + type});
    CHECK(deck_hash(read_text(print_deck(deck))) == deck_hash(deck));
  }
  CHECK_THAT(print_deck(read_small()),
             ContainsSubstring("\n# momentum = 0                           # not read by this "
                               "optimizer.type\n"));
  CHECK_THAT(print_deck(read_small({"optimizer.type=sgd"})), ContainsSubstring("\n# eps = "));
}

TEST_CASE("the resolved deck of each strategy reads back as the same deck", "[deck]") {
  std::vector<std::string> const zero{"parallel.strategy=zero", "parallel.zero_stage=1"};
  std::vector<std::string> drawn = zero;
  drawn.emplace_back("parallel.gradient_reduction=all_reduce");
  for (std::vector<std::string> const& overrides :
       {std::vector<std::string>{},
        zero,
        drawn,
        {"parallel.strategy=hsdp", "parallel.shard_group=2"},
        {"parallel.strategy=naive"},
        {"parallel.strategy=naive", "parallel.naive_update=main"},
        {"parallel.granularity=step"},
        {"parallel.granularity=tensor"},
        {"parallel.strategy=zero", "parallel.zero_stage=3", "parallel.partition=inter_layer"}}) {
    Deck const deck = read_small(overrides);
    CHECK(deck_hash(read_text(print_deck(deck))) == deck_hash(deck));
  }
  CHECK_THAT(print_deck(read_small()), ContainsSubstring("\n# all_gather = \"auto\""));
  CHECK_THAT(print_deck(read_small(zero)), ContainsSubstring("\n# allreduce = \"auto\""));
}

TEST_CASE("the resolved deck tells the origin of every value", "[deck]") {
  std::string const text = print_deck(read_small({"optimizer.lr=0.5"}, "optimizer.clip=2"));
  CHECK_THAT(text, ContainsSubstring("micro = 2                                # deck:12\n"));
  CHECK_THAT(text, ContainsSubstring("lr = 0.5                                 # command line\n"));
  CHECK_THAT(text, ContainsSubstring("clip = 2                                 # environment\n"));
  CHECK_THAT(text, ContainsSubstring("gemm = \"auto\"                            # default\n"));
  CHECK_THAT(text,
             ContainsSubstring("[comm.emulated_network]\nlatency = \"0 s\"                          # default\n"));
}

TEST_CASE("the hash depends on values and not on how they are written", "[deck]") {
  std::string const hash = deck_hash(read_small());
  CHECK_THAT(hash, Matches("[0-9a-f]{16}"));
  CHECK(deck_hash(read_text("# comment\n\n" + small_deck)) == hash);
  CHECK(deck_hash(read_small({"batch.micro=2"})) == hash);
  CHECK(deck_hash(read_small({"batch.micro=4"})) != hash);
  CHECK(deck_hash(read_small({"kernels.gemm=kokkos"})) != hash);
}

TEST_CASE("the label names file, hash and overrides", "[deck]") {
  CHECK_THAT(deck_label(read_small()), Matches("small\\.toml#[0-9a-f]{4}"));
  CHECK_THAT(deck_label(read_small({"batch.micro=4"})), Matches("small\\.toml#[0-9a-f]{4} \\+1 override"));
  CHECK_THAT(deck_label(read_small({"batch.micro=4", "batch.micro=2"}, "data.seed=2")),
             Matches("small\\.toml#[0-9a-f]{4} \\+2 overrides"));
}

TEST_CASE("the golden key follows what the loss curve depends on", "[deck]") {
  std::string const key = golden_key(read_small(), 1);
  for (char const* change : {"model.heads=2", "data.sequence=8", "data.seed=2", "data.steps=11", "optimizer.lr=1",
                             "optimizer.schedule=constant", "batch.global=4", "data.files=[\"other.txt\"]",
                             "model.load=m.bin", "model.dropout=0.1", "data.validation_fraction=0.1"}) {
    INFO(change);
    CHECK(golden_key(read_small({change}), 1) != key);
  }
}

TEST_CASE("a deck that stores bf16 has a golden key in fp32, and one in fp16 or fp32 has none", "[deck]") {
  std::string const in_fp32 = golden_key(read_small(), 1);
  for (char const* recipe : {"mixed16", "mixed18", "mixed20"}) {
    INFO(recipe);
    std::string const mixed = std::string("precision.recipe=") + recipe;
    CHECK(golden_key(read_small({mixed}), 1) != in_fp32);
    CHECK(golden_key_in_fp32(read_small({mixed}), 1) == in_fp32);
    CHECK(golden_key_in_fp32(read_small({mixed, "optimizer.lr=1"}), 1) != in_fp32);
    CHECK(!golden_key_in_fp32(read_small({mixed, "precision.storage=fp16", "precision.loss_scale=dynamic"}), 1));
  }
  CHECK(!golden_key_in_fp32(read_small(), 1));
}

TEST_CASE("the golden key knows only what the optimizer reads", "[deck]") {
  Deck deck = read_small();
  std::string const adamw = golden_key(deck, 1);
  deck.config.optimizer.momentum = 0.5;
  CHECK(golden_key(deck, 1) == adamw);
  CHECK(golden_key(read_small({"optimizer.type=adam"}), 1) != adamw);
  Deck sgd = read_small({"optimizer.type=sgd"});
  std::string const plain = golden_key(sgd, 1);
  CHECK(golden_key(read_small({"optimizer.type=sgd", "optimizer.momentum=0.5"}), 1) != plain);
  sgd.config.optimizer.epsilon = 1;
  CHECK(golden_key(sgd, 1) == plain);
}

TEST_CASE("the golden key ignores how the work is split and measured", "[deck]") {
  std::string const key = golden_key(read_small(), 1);
  CHECK(golden_key(read_small(), 2) == key);
  CHECK(golden_key(read_small({"batch.accumulation=4", "batch.global=0"}), 1) == key); // global follows: 8
  for (char const* change : {"batch.micro=4", "bench.warmup_steps=2", "comm.expected_ranks=1", "comm.check_order=true",
                             "comm.emulated_nodes=1", "comm.emulated_network.latency=1 ms", "kernels.gemm=kokkos",
                             "model.save=m.bin", "model.attention=flash", "data.validation_files=[\"v.txt\"]"}) {
    INFO(change);
    CHECK(golden_key(read_small({change}), 1) == key);
  }
}

TEST_CASE("the golden key of workers that train apart follows what their order follows from", "[deck][servers]") {
  auto const key = [](std::vector<std::string> changes, std::int64_t ranks = 3) {
    changes.insert(changes.end(), {"parallel.strategy=parameter_server", "faults.pace.forward=1 ms"});
    return golden_key(read_small(changes), ranks);
  };
  std::string const sync = key({}), planned = key({"server.mode=async"}),
                    arrival = key({"server.mode=async", "server.order=arrival"});
  CHECK(sync == key({"server.count=2"}, 4));
  CHECK(sync == key({"faults.straggler.sigma=0.5"}));
  CHECK(planned != sync);
  CHECK(arrival != planned);
  CHECK(key({"server.mode=async", "server.count=2"}, 4) == planned);   // as many workers
  CHECK(key({"server.mode=async", "server.lr_scale=0.5"}) == planned); // the default of two workers
  for (char const* change : {"server.lr_scale=0.25", "server.mode=bounded", "faults.straggler.sigma=0.5"}) {
    INFO(change);
    CHECK(key({"server.mode=async", change}) != planned);
  }
  CHECK(key({"server.mode=async", "server.order=arrival", "faults.straggler.sigma=0.5"}) == arrival); // time counts
  CHECK(key({"server.mode=async", "checkpoint.dir=kept", "checkpoint.every_steps=2"}) != planned);    // other pauses
  CHECK(key({"server.mode=bounded", "server.staleness=2"}) != key({"server.mode=bounded", "server.staleness=3"}));
}

TEST_CASE("a preset and its numbers have the same golden key", "[deck]") {
  std::string const rest = "[data]\nsource = \"synthetic\"\nsteps = 1\n[batch]\nmicro = 1\nglobal = 1\n";
  std::string const numbers = "[model]\nlayers = 12\nheads = 12\nchannels = 768\ncontext = 1024\nvocab = 50257\n";
  CHECK(golden_key(read_text("model.preset = \"gpt2\"\n" + rest), 1) == golden_key(read_text(numbers + rest), 1));
}

TEST_CASE("files with a hash count by their bytes and not by their names", "[deck]") {
  auto const key = [](std::string const& file, std::string const& hash) {
    return golden_key(read_small({"data.files=[\"" + file + "\"]", "data.xxhash=" + hash}), 1);
  };
  CHECK(key("a.txt", "0123456789abcdef") == key("b.txt", "0123456789abcdef"));
  CHECK(key("a.txt", "0123456789abcdef") != key("a.txt", "1123456789abcdef"));
}

TEST_CASE("the resolved parameters hold every key, the batch for the given ranks", "[deck]") {
  std::vector<Parameter> const parameters = resolved_parameters(read_small(), 2);
  REQUIRE(parameters.size() == deck_keys().size());
  auto const find = [&](std::string const& name) {
    for (Parameter const& parameter : parameters) {
      if (parameter.key == name) return parameter;
    }
    return Parameter{};
  };
  CHECK(find("batch.accumulation").value == DeckValue(std::int64_t{2}));
  CHECK(find("batch.accumulation").origin == "derived");
  CHECK(find("batch.accumulation").unit == "micro-batches");
  CHECK(find("batch.global").origin == "deck:13");
  CHECK(find("comm.emulated_network.bandwidth").value == DeckValue(Quantity{Dimension::rate, 0}));
}
