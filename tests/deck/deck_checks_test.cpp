#include "deck/deck_checks.hpp"
#include "deck/schema.hpp"
#include "support/deck_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

TEST_CASE("the small deck is legal", "[deck]") { CHECK(error_with({}) == "no InputError"); }

TEST_CASE("heads that do not divide channels are refused at their line", "[deck]") {
  CHECK(
      error_with_line(3, "heads = 5") ==
      "inputs/small.toml:3: model.heads = 5 does not divide model.channels = 64; nearest legal values: heads 4 or 8 or "
      "channels 60 or 65");
}

TEST_CASE("a model without shape is refused", "[deck]") {
  CHECK(error_of("[data]\nsource = \"synthetic\"\nsteps = 1\n") ==
        "inputs/small.toml: model.layers = 0: must be at least 1 (or give model.preset)");
  CHECK(error_with_line(5, "context = 0") ==
        "inputs/small.toml:5: model.context = 0: must be at least 1 (or give model.preset)");
}

TEST_CASE("what blocks compute again is one value, or one per block, and attention must keep it otherwise", "[deck]") {
  RunConfig const one = read_small({"memory.recompute=full"}).config;
  CHECK(one.model_options.recompute == std::vector{Recompute::full});
  std::int64_t const layers = one.model.layers;
  std::string list = "[\"none\"";
  for (std::int64_t block = 1; block < layers; ++block) list += ", \"selective\"";
  RunConfig const each = read_small({"memory.recompute=" + list + "]"}).config;
  CHECK(std::ssize(each.model_options.recompute) == layers);
  CHECK(each.model_options.recompute_of(0) == Recompute::none);
  CHECK(each.model_options.recompute_of(layers - 1) == Recompute::selective);
  CHECK_THAT(error_with({"memory.recompute=" + list + ", \"full\"]"}),
             ContainsSubstring("nearest legal values: one value for all blocks, or "));
  CHECK_THAT(error_with({"memory.recompute=selective", "model.attention=flash"}),
             EndsWith("nearest legal values: \"none\" or \"full\""));
  CHECK(error_with({"memory.recompute=full", "model.attention=flash"}) == "no InputError");
  CHECK_THAT(error_with({"memory.recompute=some"}), EndsWith("must be one of none, selective, full"));
  CHECK_THAT(error_with({"memory.recompute=[\"full\", \"some\"]"}), ContainsSubstring("\"some\" is unknown"));
  CHECK_THAT(error_of(small_deck + "[memory]\nrecompute = 3\n"),
             ContainsSubstring("memory.recompute is an integer, must be a string or a list of strings"));
}

TEST_CASE("chunks of the loss divide the rows of a micro-batch", "[deck]") {
  auto const resolved = [](std::string const& chunks) {
    return input_error_of([&] { resolve(read_small({"memory.loss_chunks=" + chunks}), 1); }); // 2 x 16 rows
  };
  for (char const* const legal : {"1", "2", "32"}) CHECK(resolved(legal) == "no InputError");
  CHECK_THAT(resolved("5"), EndsWith("does not divide the 32 rows of a micro-batch (batch.micro x data.sequence); "
                                     "nearest legal values: 4 or 8"));
  CHECK_THAT(resolved("64"), EndsWith("nearest legal values: 32"));
  CHECK_THAT(error_with({"memory.loss_chunks=0"}), ContainsSubstring("must be 1 to"));
}

TEST_CASE("products that are measured are refused in ordered mode", "[deck]") {
  CHECK(error_with({"kernels.gemm=measured"}) == "no InputError");
  CHECK_THAT(error_with({"kernels.gemm=measured", "parallel.reduction=ordered"}),
             ContainsSubstring("parallel.reduction = \"ordered\" takes \"auto\" or a provider by name"));
}

TEST_CASE("every key of an algorithm can be left to a measurement, with all buffers and networks", "[deck]") {
  for (AlgorithmKey const& key : algorithm_keys) {
    Key const* const found = find_key(key.name);
    REQUIRE(found);
    CHECK(found->choices.back() == "measured");
    RunConfig config;
    found->set(config, std::string("measured"));
    CHECK(config.comm.*key.member == "measured");
    config.comm.buffers = "staged";
    CHECK_FALSE(find_buffers_problem(config));
    config.comm.emulated_latency = 1e-3;
    CHECK_FALSE(find_network_problem(config));
  }
  Deck const ordered = read_small({"comm.allreduce=measured", "parallel.reduction=ordered"});
  CHECK_THAT(input_error_of([&] { resolve(ordered, 2); }),
             StartsWith("--set comm.allreduce=measured: comm.allreduce = \"measured\" may choose another algorithm") &&
                 EndsWith("parallel.reduction = \"ordered\" takes \"auto\" or an algorithm by name"));
}

TEST_CASE("a sequence longer than the context is refused", "[deck]") {
  CHECK(error_with_line(9, "sequence = 33") ==
        "inputs/small.toml:9: data.sequence = 33 exceeds model.context = 32; nearest legal value: 32");
}

TEST_CASE("bytes need a vocabulary of 256", "[deck]") {
  CHECK(
      error_with_line(6, "vocab = 255") ==
      "inputs/small.toml:6: model.vocab = 255 is too small for data.source = \"text\", whose tokens are bytes; nearest "
      "legal value: 256");
  CHECK(error_with({"model.vocab=97", "data.source=tokens"}) == "no InputError");
}

TEST_CASE("sources that read files need files, synthetic data refuses them", "[deck]") {
  CHECK_THAT(error_with({"data.files=[]"}), ContainsSubstring("data.files is empty: name at least one file"));
  CHECK_THAT(error_with({"data.source=synthetic"}),
             EndsWith("small.toml:8: data.files must be empty for data.source = \"synthetic\""));
  std::vector<std::string> const synthetic{"data.source=synthetic", "data.files=[]"};
  auto const with = [&](std::string const& more) {
    std::vector<std::string> overrides = synthetic;
    overrides.push_back(more);
    return error_with(overrides);
  };
  CHECK(with("data.seed=7") == "no InputError");
  CHECK_THAT(with("data.validation_files=[\"x\"]"), ContainsSubstring("data.validation_files must be empty"));
  CHECK_THAT(with("data.xxhash=0123456789abcdef"), ContainsSubstring("data.xxhash must be empty"));
}

TEST_CASE("a file hash has 16 hexadecimal digits", "[deck]") {
  CHECK(error_with({"data.xxhash=0123456789abcdef"}) == "no InputError");
  CHECK_THAT(error_with({"data.xxhash=0123456789abcde"}), ContainsSubstring("must be 16 hexadecimal digits"));
  CHECK_THAT(error_with({"data.xxhash=0123456789abcdeg"}), ContainsSubstring("must be 16 hexadecimal digits"));
  CHECK_THAT(error_with({"data.xxhash=0123456789ABCDEF"}), ContainsSubstring("in lower case"));
}

TEST_CASE("the length is given once", "[deck]") {
  CHECK(error_with({"data.epochs=2"}) ==
        "--set data.epochs=2: data.steps = 10 and data.epochs = 2 exclude each other: give one of them");
  CHECK(error_with_line(10, "") == "inputs/small.toml: give the length of the training: data.steps or data.epochs");
  CHECK(error_with({"data.steps=0", "data.epochs=2"}) == "no InputError");
  CHECK_THAT(error_with({"data.steps=0", "data.epochs=2", "data.source=synthetic", "data.files=[]"}),
             ContainsSubstring("data.epochs needs files"));
}

TEST_CASE("whatever uses held-out data needs some", "[deck]") {
  for (char const* key :
       {"data.validate_every=5", "data.validation_batches=5", "data.validation_micro=1", "data.stop_loss=2.0"}) {
    CHECK_THAT(error_with({key}), ContainsSubstring("needs held-out data: give data.validation_files or "
                                                    "data.validation_fraction"));
  }
  CHECK(error_with({"data.validate_every=5", "data.validation_fraction=0.1"}) == "no InputError");
  CHECK(error_with({"data.validate_every=5", "data.validation_files=[\"v.txt\"]"}) == "no InputError");
  CHECK_THAT(error_with({"data.validation_fraction=0.1", "data.validation_files=[\"v.txt\"]"}),
             ContainsSubstring("exclude each other"));
}

TEST_CASE("a stop loss needs validations during the training", "[deck]") {
  CHECK_THAT(error_with({"data.stop_loss=2.0", "data.validation_fraction=0.1"}),
             ContainsSubstring("set data.validate_every to at least 1"));
  CHECK(error_with({"data.stop_loss=2.0", "data.validation_fraction=0.1", "data.validate_every=1"}) == "no InputError");
}

TEST_CASE("a warm-up longer than the training is refused", "[deck]") {
  CHECK(error_with({"optimizer.warmup=10"}) == "no InputError");
  CHECK(error_with({"optimizer.warmup=11"}) ==
        "--set optimizer.warmup=11: optimizer.warmup = 11 exceeds data.steps = 10; nearest legal value: 10");
}

TEST_CASE("a server neither straggles nor overflows", "[deck]") {
  std::vector<std::string> const straggler{"parallel.strategy=parameter_server", "faults.pace.forward=20 ms",
                                           "faults.straggler.factor=2", "faults.straggler.rank=2"};
  std::vector<std::string> const overflow{"parallel.strategy=parameter_server", "faults.overflow.step=1",
                                          "faults.overflow.rank=2"};
  for (auto const& overrides : {straggler, overflow}) {
    Deck const deck = read_small(overrides);
    CHECK_THAT(input_error_of([&] { resolve(deck, 3); }),
               EndsWith("rank = 2 is a server, which computes no parts; nearest legal value: 1"));
    CHECK_NOTHROW(resolve(deck, 5));
  }
}

TEST_CASE("workers that do not wait for each other have keys of their own", "[deck]") {
  std::vector<std::string> const async{"parallel.strategy=parameter_server", "server.mode=async"};
  auto const with = [&](std::vector<std::string> const& more) {
    std::vector<std::string> overrides = async;
    overrides.insert(overrides.end(), more.begin(), more.end());
    return error_with(overrides);
  };
  CHECK(with({"server.order=arrival", "server.lr_scale=0.5"}) == "no InputError");
  CHECK(with({"server.mode=bounded", "server.staleness=4"}) == "no InputError");
  CHECK_THAT(with({"server.staleness=4"}), ContainsSubstring("server.mode = \"bounded\""));
  for (char const* key : {"server.order=arrival", "server.lr_scale=0.5"})
    CHECK_THAT(error_with({"parallel.strategy=parameter_server", key}), ContainsSubstring("not read with server.mode"));
  CHECK_THAT(error_with({"server.mode=async"}), ContainsSubstring("not read with parallel.strategy"));
  CHECK_THAT(with({"server.colocated=true"}), ContainsSubstring("need ranks that do nothing but serve"));
  CHECK_THAT(with({"parallel.check_replicas=2"}), ContainsSubstring("in pauses only"));
  CHECK_THAT(with({"checkpoint.dir=kept"}), ContainsSubstring("set checkpoint.every_steps or data.validate_every"));
  CHECK(with({"checkpoint.dir=kept", "checkpoint.every_steps=4"}) == "no InputError");
  std::vector<std::string> const both{"checkpoint.dir=kept", "checkpoint.every_steps=4", "data.validation_fraction=0.1",
                                      "data.validate_every=6"};
  CHECK_THAT(with(both), ContainsSubstring("one interval must divide the other"));
  CHECK_THAT(with({"bench.kernels=true"}), ContainsSubstring("time no kernels"));
  CHECK_THAT(with({"precision.recipe=mixed16", "precision.storage=fp16", "precision.loss_scale=dynamic"}),
             ContainsSubstring("skip no push"));
}

TEST_CASE("servers that update unit by unit decide over no update", "[deck]") {
  auto const with = [&](std::vector<std::string> const& more) {
    std::vector<std::string> overrides{"parallel.strategy=parameter_server", "server.schedule=priority"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return error_with(overrides);
  };
  CHECK(with({"optimizer.clip=0", "server.slice=64 KiB"}) == "no InputError");
  CHECK_THAT(with({}), ContainsSubstring("optimizer.clip: server.schedule \"priority\" updates before the norm"));
  CHECK_THAT(with({"optimizer.clip=0", "server.mode=async"}), ContainsSubstring("server.mode: ") && EndsWith("sync"));
  CHECK_THAT(with({"optimizer.clip=0", "server.colocated=true"}), ContainsSubstring("nothing but serve"));
  CHECK_THAT(with({"optimizer.clip=0", "parallel.overlap=false"}), ContainsSubstring("legal value: true"));
  CHECK_THAT(
      with({"optimizer.clip=0", "precision.recipe=mixed16", "precision.storage=fp16", "precision.loss_scale=dynamic"}),
      ContainsSubstring("skips no step"));
  CHECK_THAT(with({"optimizer.clip=0", "faults.extra_message=true"}), ContainsSubstring("while ranks agree on losses"));
  CHECK_THAT(error_with({"parallel.strategy=parameter_server", "server.slice=64 KiB"}),
             ContainsSubstring("server.slice is not read with server.schedule = \"fifo\""));
}

TEST_CASE("precision that cannot be honoured is refused with what would be", "[deck]") {
  CHECK(error_with({"precision.recipe=mixed16"}) == "no InputError");
  CHECK(error_with({"precision.recipe=mixed20", "precision.storage=fp16", "precision.loss_scale=dynamic"}) ==
        "no InputError");
  CHECK_THAT(error_with({"precision.recipe=mixed16", "precision.storage=fp16"}),
             ContainsSubstring("needs a loss scale") && ContainsSubstring("precision.loss_scale = \"dynamic\""));
  CHECK_THAT(
      error_with({"precision.recipe=mixed16", "precision.loss_scale=dynamic", "precision.initial_loss_scale=1000"}),
      ContainsSubstring("nearest legal values: 512 or 1024"));
  CHECK_THAT(
      error_with({"precision.storage=bf16"}),
      ContainsSubstring(
          "not read with precision.recipe = \"fp32\", only with precision.recipe = \"mixed16\", \"mixed18\" or"));
  CHECK_THAT(error_with({"precision.loss_scale=dynamic"}), ContainsSubstring("precision.recipe"));
  CHECK_THAT(error_with({"precision.recipe=mixed16", "precision.growth_interval=5"}),
             ContainsSubstring("not read with precision.loss_scale = \"none\""));
  CHECK_THAT(error_with({"precision.recipe=mixed17"}), ContainsSubstring("mixed16"));
}

TEST_CASE("a step is too large to be counted by the share of a tensor rank", "[deck]") {
  RunConfig config = read_small().config; // 2048 x 2048 tokens of 6 x 12 x 2^34 FLOP, and attention: 5.2e18
  config.model = {.layers = 1, .heads = 8, .channels = 1 << 17, .context = 2048, .vocab = 256};
  config.data.sequence = 2048;
  config.batch = {.micro = 1, .accumulation = 2048, .global = 2048};
  CHECK(find_size_problem(config));
  config.parallel.tensor = 8;
  CHECK(!find_size_problem(config));
}

TEST_CASE("a unit has at most all blocks of the model", "[deck]") {
  std::vector<std::string> const zero{"parallel.strategy=zero", "parallel.zero_stage=3"};
  auto const with_unit = [&](std::int64_t blocks) {
    std::vector<std::string> keys = zero;
    keys.push_back(fmt::format("parallel.unit={}", blocks));
    return error_with(keys);
  };
  std::int64_t const layers = read_small({}).config.model.layers;
  CHECK(with_unit(1) == "no InputError");
  CHECK(with_unit(layers) == "no InputError");
  CHECK(with_unit(layers + 1) ==
        fmt::format("--set parallel.unit={}: parallel.unit = {} exceeds model.layers = {}; nearest legal value: {}",
                    layers + 1, layers + 1, layers, layers));
  CHECK_THAT(with_unit(0), ContainsSubstring("out of range"));
}

TEST_CASE("micro-batches of a validation divide the samples that a rank has of a global batch", "[deck]") {
  auto const resolved = [](std::vector<std::string> keys) {
    for (char const* const key : {"data.validation_fraction=0.1", "batch.micro=2", "batch.global=24"})
      keys.insert(keys.begin(), key);
    return input_error_of([&] { resolve(read_small(keys), 2); }); // 12 samples
  };
  for (char const* const micro : {"0", "1", "2", "4", "12"})
    CHECK(resolved({std::string("data.validation_micro=") + micro}) == "no InputError");
  CHECK_THAT(resolved({"data.validation_micro=5"}), EndsWith("nearest legal values: 4 or 6"));
  CHECK_THAT(resolved({"data.validation_micro=24"}), ContainsSubstring("does not divide the 12 samples"));
  CHECK_THAT(resolved({"data.validation_micro=1", "memory.loss_chunks=64"}), EndsWith("nearest legal value: 2"));
  for (char const* const key :
       {"parallel.pipeline=2", "parallel.tensor=2", "parallel.tensor_blocks=2", "parallel.strategy=naive"}) {
    CHECK_THAT(resolved({"data.validation_micro=1", key}), EndsWith("nearest legal value: 2"));
    CHECK(resolved({"data.validation_micro=2", key}) == "no InputError");
  }
}
