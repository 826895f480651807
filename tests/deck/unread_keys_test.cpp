// Keys that nothing reads: they are refused where they were set, unless a choice was replaced that read them.

#include "deck/unread_keys.hpp"

#include "support/deck_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

TEST_CASE("how masks are kept is a question of dropout", "[deck]") {
  CHECK(error_with({"model.dropout=0.1", "model.dropout_masks=stored"}) == "no InputError");
  CHECK(error_with({"model.dropout_masks=stored"}) ==
        "--set model.dropout_masks=stored: model.dropout_masks is not read with model.dropout = 0, only with "
        "model.dropout above 0: leave it out, or change that");
  CHECK_THAT(error_with({"model.dropout=1"}), ContainsSubstring("out of range, must be 0 to below 1"));
}

TEST_CASE("who computes attention is a question of attention that keeps no probabilities", "[deck]") {
  for (std::string const name : {"auto", "flash", "tensor_cores", "cudnn", "wgmma"})
    CHECK(read_small({"model.attention=flash", "kernels.attention=" + name}).config.kernels.attention == name);
  CHECK(read_small().config.kernels.attention == "auto");
  CHECK(error_with({"kernels.attention=flash"}) ==
        "--set kernels.attention=flash: kernels.attention is not read with model.attention = \"materialized\", only "
        "with model.attention = \"flash\": leave it out, or change that");
}

TEST_CASE("keys that the optimizer does not read are refused where they were set", "[deck]") {
  CHECK(error_with({"optimizer.type=adam", "optimizer.betas=[0.8, 0.9]", "optimizer.eps=1e-6"}) == "no InputError");
  CHECK(error_with({"optimizer.type=sgd", "optimizer.momentum=0.9"}) == "no InputError");
  CHECK(error_with({"optimizer.momentum=0"}) == "--set optimizer.momentum=0: optimizer.momentum is not read with "
                                                "optimizer.type = \"adamw\", only with optimizer.type = \"sgd\": leave "
                                                "it out, or change that");
  CHECK(error_with({"optimizer.type=sgd", "optimizer.betas=[0.9, 0.95]"}) ==
        "--set optimizer.betas=[0.9, 0.95]: optimizer.betas is not read with optimizer.type = \"sgd\", only with "
        "optimizer.type = \"adamw\" or \"adam\": leave it out, or change that");
  CHECK(error_of(small_deck + "[optimizer]\ntype = \"sgd\"\neps = 1e-8\n") ==
        "inputs/small.toml:16: optimizer.eps is not read with optimizer.type = \"sgd\", only with "
        "optimizer.type = \"adamw\" or \"adam\": leave it out, or change that");
  CHECK_THAT(error_with({"optimizer.type=sgd", "optimizer.momentum=1"}), ContainsSubstring("out of range"));
}

TEST_CASE("a choice that is overridden leaves the keys of the deck that it read behind", "[deck]") {
  std::string const deck = small_deck + "[parallel]\nbucket = \"1 MiB\"\n";
  CHECK(input_error_of([&] { read_text(deck, {"parallel.granularity=step"}); }) == "no InputError");
  CHECK_THAT(error_of(deck + "granularity = \"step\"\n"),
             StartsWith("inputs/small.toml:15: parallel.bucket is not read"));

  std::string const zero = small_deck + "[parallel]\nstrategy = \"zero\"\nzero_stage = 1\n";
  CHECK(read_text(zero, {"parallel.strategy=ddp"}).config.parallel.zero_stage == 0);
  CHECK_THAT(input_error_of([&] { resolve(read_text(zero, {"parallel.strategy=hsdp"}), 2); }),
             ContainsSubstring("needs parallel.shard_group, a divisor of the 2 data ranks"));
  CHECK_THAT(input_error_of([&] { resolve(read_text(zero, {"parallel.strategy=ddp", "parallel.zero_stage=1"}), 2); }),
             ContainsSubstring("parallel.zero_stage = 1 belongs to parallel.strategy = \"zero\", not to \"ddp\""));
}

TEST_CASE("a key of a replaced choice takes the keys along that only it reads", "[deck]") {
  std::string const deck = small_deck + "[parallel]\ntensor = 2\nsequence = true\ntensor_keep_gathered = true\n"
                                        "[comm]\ntensor_all_gather = \"ring\"\n";
  RunConfig const alone = read_text(deck, {"parallel.tensor=1"}).config;
  CHECK((!alone.parallel.sequence && !alone.parallel.tensor_keep_gathered && alone.comm.tensor_all_gather == "auto"));
  RunConfig const whole = read_text(deck, {"parallel.sequence=false"}).config;
  CHECK((whole.parallel.tensor == 2 && !whole.parallel.tensor_keep_gathered && whole.comm.tensor_all_gather == "auto"));
}

TEST_CASE("keys that the strategy does not read are refused where they were set", "[deck]") {
  std::vector<std::string> const ddp, zero{"parallel.strategy=zero", "parallel.zero_stage=1"},
      hsdp{"parallel.strategy=hsdp", "parallel.shard_group=2"}, by_step{"parallel.granularity=step"},
      by_tensor{"parallel.granularity=tensor"},
      drawn{"parallel.strategy=zero", "parallel.zero_stage=1", "parallel.gradient_reduction=all_reduce"},
      owners{"parallel.strategy=zero", "parallel.zero_stage=1", "parallel.partition=inter_layer"},
      drawn_owners{"parallel.strategy=zero", "parallel.zero_stage=2", "parallel.partition=inter_layer",
                   "parallel.gradient_reduction=all_reduce"},
      naive{"parallel.strategy=naive"};
  struct Case {
    char const* assignment;
    std::vector<std::vector<std::string>> read, unread;
  };
  for (Case const& one :
       {Case{"comm.all_gather=ring", {zero, hsdp, drawn}, {ddp, by_step, by_tensor, owners, drawn_owners}},
        Case{"parallel.prefetch=1", {zero, hsdp, drawn, owners, drawn_owners}, {ddp, by_step, by_tensor}},
        Case{"parallel.unit=2", {zero, hsdp, drawn, owners, drawn_owners}, {ddp, by_step, by_tensor, naive}},
        Case{"parallel.naive_update=main", {naive}, {ddp, zero, hsdp}},
        Case{"comm.reduce_scatter=ring", {zero, hsdp}, {ddp, drawn, owners, drawn_owners}},
        Case{"comm.reduce=binomial", {owners, naive}, {ddp, zero, hsdp, drawn_owners}},
        Case{"comm.broadcast=binomial", {owners, naive, drawn_owners}, {ddp, zero, hsdp}},
        Case{"comm.allreduce=ring", {ddp, hsdp, by_step, drawn, drawn_owners}, {zero}},
        Case{"parallel.bucket=1 MiB", {ddp, zero, hsdp}, {by_step, by_tensor, naive}},
        Case{"parallel.first_bucket=1 MiB", {ddp, zero, hsdp}, {by_step, by_tensor}},
        Case{"parallel.in_flight=2", {ddp, zero, hsdp, by_tensor}, {by_step, naive}},
        Case{"parallel.overlap=true", {ddp, zero, hsdp, by_tensor}, {by_step, naive}}}) {
    INFO(one.assignment);
    auto const with = [&](std::vector<std::string> overrides) {
      overrides.emplace_back(one.assignment);
      return error_with(overrides);
    };
    std::string const key(one.assignment, std::string(one.assignment).find('='));
    for (std::vector<std::string> const& overrides : one.read) CHECK(with(overrides) == "no InputError");
    for (std::vector<std::string> const& overrides : one.unread)
      CHECK_THAT(with(overrides), StartsWith(fmt::format("--set {}: {} is not read with ", one.assignment, key)) &&
                                      EndsWith(": leave it out, or change that"));
  }
  CHECK(error_of(small_deck + "[comm]\nall_gather = \"ring\"\n") ==
        "inputs/small.toml:15: comm.all_gather is not read with parallel.strategy = \"ddp\", only with "
        "parallel.strategy = \"zero\" or \"hsdp\", or server.colocated = true: leave it out, or change that");
  CHECK_THAT(
      error_with({"parallel.strategy=zero", "parallel.zero_stage=1", "comm.allreduce=ring"}),
      EndsWith("only with parallel.strategy = \"ddp\" or \"hsdp\", or parallel.gradient_reduction = \"all_reduce\": "
               "leave it out, or change that"));
}
