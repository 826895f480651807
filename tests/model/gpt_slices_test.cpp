// A model that tensor parallelism cuts into slices, all of them on one rank: against the reference model, and what its
// kernels count against the plan.

#include "model/gpt_comparison.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

GptOptions in_slices(GptOptions options, Index blocks, bool wide_sums) {
  options.slices.blocks = blocks;
  options.wide_sums = wide_sums;
  return options;
}

} // namespace

TEST_CASE("losses and every gradient of a model in slices equal the reference model's", "[model]") {
  Index const blocks = GENERATE(2, 4);
  GptOptions options = in_slices(GENERATE(from_range(all_options())), blocks, GENERATE(false, true));
  options.loss_chunks = GENERATE(1, 3);
  options.row_chunks = options.loss_chunks == 3 ? 4 : 1;
  ExecutionSpace const exec;
  Fp32Model model(exec, sliced, sliced_rows, options);
  model.forward_backward(exec, model.load());
  Expected expected_values(exec, model, 1);
  ReferenceModel& reference = expected_values.reference;

  // as for a whole model (gpt_test.cpp)
  double const eps = 0x1p-23, bound = 8 * eps * std::sqrt(4.0 * static_cast<double>(sliced.channels));
  CHECK(std::abs(mean_loss(exec, model) - expected_values.mean_loss) <= bound * expected_values.mean_loss);
  double const largest_of_all = largest(std::span<double const>(reference.gradients()));
  for (LlmcTensor const& tensor : reference.tensors())
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      INFO(tensor.name << " layer " << layer);
      std::vector<double> const values =
          whole_tensor(exec, model.table, table_entry(model.table, tensor, layer), model.gradients);
      std::span<double const> const expected = reference.gradient(tensor.name, layer);
      double const scale = std::max(largest(expected), 1e-2 * largest_of_all);
      CHECK(mismatches(std::span<double const>(values), expected, 4 * bound * scale + 1e-12) == "");
    }
}

namespace {

/// Of a model in 16 bits.
template <class Types>
void check_gradients(GptConfig const& config, GptOptions const& options) {
  ExecutionSpace const exec;
  TestModel<typename Types::Storage, typename Types::Gradient> model(exec, config, sliced_rows, options);
  float const loss_scale = 1024;
  model.forward_backward(exec, model.load(loss_scale));
  Expected expected(exec, model, static_cast<double>(loss_scale));
  // as for a whole model (gpt_test.cpp), with up to four roundings more of each of the five sums over slices of a block
  // and of the head's and embed's
  double const u = storing_error<typename Types::Storage>(1.0), layers = static_cast<double>(config.layers);
  double const roundings = 2 * ((12 + 4 * 5) * layers + 3 + 4 * 2) + 1;
  for (LlmcTensor const& tensor : expected.reference.tensors())
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      INFO(tensor.name << " layer " << layer);
      std::vector<double> error =
          whole_tensor(exec, model.table, table_entry(model.table, tensor, layer), model.gradients);
      std::span<double const> const wanted = expected.reference.gradient(tensor.name, layer);
      for (std::size_t i = 0; i < error.size(); ++i) error[i] -= wanted[i];
      CHECK(std::sqrt(reference::squared_norm(error)) <=
            u * std::sqrt(roundings / 3) * std::sqrt(reference::squared_norm(wanted)));
    }
}

} // namespace

TEMPLATE_LIST_TEST_CASE("gradients of 16-bit models in slices equal the reference model's", "[model]",
                        SixteenBitTypes) {
  check_gradients<TestType>(sliced,
                            in_slices(GENERATE(from_range(all_options())), GENERATE(1, 2, 4), GENERATE(false, true)));
}

TEMPLATE_LIST_TEST_CASE("gradients of 16-bit models equal the reference model's with every provider of attention",
                        "[model]", SixteenBitTypes) {
  GptConfig const config{2, 2, 128, 12, 100};
  for (AttentionProvider const provider : built_attention_providers())
    for (double const dropout : {0.0, 0.25})
      for (Index const blocks : {1, 2}) {
        INFO(to_string(provider) << ", dropout " << dropout << ", slices " << blocks);
        GptOptions options = in_slices({.attention = AttentionKind::flash, .dropout = dropout}, blocks, false);
        options.attention_provider = provider;
        AttentionNeed const need =
            attention_need(config, sliced_rows, storage_of<typename TestType::Storage>(), options);
        if (!attention_problem(provider, need).empty()) continue;
        check_gradients<TestType>(config, options);
      }
}

TEMPLATE_LIST_TEST_CASE("FLOPs and bytes of every kernel on slices equal the plan", "[model]",
                        StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GptOptions options = in_slices(GENERATE(from_range(all_options())), GENERATE(2, 4), GENERATE(false, true));
  options.loss_chunks = GENERATE(1, 2);
  Write const mode = GENERATE(Write::overwrite, Write::add);
  ExecutionSpace const exec;
  for (std::vector<Recompute> const& recompute : all_recomputations(options.attention)) {
    options.recompute = recompute;
    Model model(exec, sliced, sliced_rows, options);
    CHECK(counted_works(exec, model, mode) == planned_works(model, mode));
  }
}

TEMPLATE_LIST_TEST_CASE("FLOPs and bytes of every kernel of a rank that has some positions equal the plan", "[model]",
                        StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GptOptions options = in_slices(GENERATE(from_range(all_options())), GENERATE(2, 4), GENERATE(false, true));
  options.slices.ranks = 2;
  options.slices.rank = GENERATE(0, 1);
  options.sequence_parallel = true;
  options.keep_gathered = GENERATE(false, true);
  options.row_chunks = options.keep_gathered ? 3 : 1; // of three samples
  ExecutionSpace const exec;
  for (std::vector<Recompute> const& recompute : all_recomputations(options.attention)) {
    options.recompute = recompute;
    Model model(exec, sliced, sliced_rows, options);
    CHECK(counted_works(exec, model, Write::add) == planned_works(model, Write::add));
  }
}

TEST_CASE("ranks that share positions keep their rows, and all rows of what products read", "[model]") {
  auto const bytes = [](bool shares, bool keeps, std::string const& begin) {
    GptOptions options = in_slices({}, 2, false);
    options.slices.ranks = 2;
    options.sequence_parallel = shares;
    options.keep_gathered = keeps;
    std::uint64_t sum = 0;
    for (PlannedTensor const& tensor : activation_plan(sliced, sliced_rows, Storage::fp32, options))
      if (tensor.name.starts_with(begin)) sum += tensor.bytes;
    return sum;
  };
  std::uint64_t const rows = memory_footprint(3 * 8 * 24 * sizeof(float)),
                      shared = memory_footprint(3 * 4 * 24 * sizeof(float));
  for (char const* const own :
       {"embedded", "block 0 middle", "block 1 middle", "block 1 output", "branch", "d_stream"}) {
    INFO(own);
    CHECK(bytes(false, false, own) == rows);
    CHECK(bytes(true, false, own) == shared);
    CHECK(bytes(true, true, own) == shared);
  }
  CHECK(bytes(true, false, "block 1 ln2 mean") == memory_footprint(3 * 4 * sizeof(float)));
  CHECK(bytes(false, false, "block 1 ln2 mean") == memory_footprint(3 * 8 * sizeof(float)));
  CHECK(bytes(true, false, "block 1 qkv") == bytes(false, false, "block 1 qkv"));
  CHECK(bytes(true, false, "gathered") == 2 * rows); // and again
  CHECK(bytes(true, true, "gathered") == rows);
  CHECK(bytes(false, false, "gathered") == 0);
  CHECK(bytes(true, true, "block 1 ln2") - bytes(true, false, "block 1 ln2") == rows - shared);
  CHECK(bytes(true, false, "lnf") - bytes(true, false, "lnf ") == rows);
  CHECK(bytes(true, false, "partial") == rows);
}

TEST_CASE("ranks that share positions start 10 L + 5 kernels more", "[model]") {
  auto const kernels = [](Index blocks, bool shares, bool keeps) {
    GptOptions options = in_slices({}, blocks, false);
    options.slices.ranks = 2;
    options.sequence_parallel = shares;
    options.keep_gathered = keeps;
    Index count = 0;
    for (KernelUse const& use : training_kernels(sliced, sliced_rows, options)) count += use.count;
    return count;
  };
  for (bool const keeps : {false, true}) {
    CHECK(kernels(2, true, keeps) == kernels(2, false, false) + 10 * sliced.layers + 5);
    CHECK(kernels(4, true, keeps) == kernels(4, false, false) + 10 * sliced.layers + 5 + 2 * sliced.layers + 1);
  }
}

TEST_CASE("products and attention of all slices have the FLOPs of the whole model", "[model]") {
  GptOptions const options = GENERATE(from_range(all_options()));
  for (Index const blocks : {2, 4}) {
    GptOptions const cut = in_slices(options, blocks, false);
    CHECK(training_flops(sliced, sliced_rows, cut).gemm == training_flops(sliced, sliced_rows, options).gemm);
    CHECK(training_flops(sliced, sliced_rows, cut).attention == training_flops(sliced, sliced_rows, options).attention);
    GptOptions of_rank = cut;
    of_rank.slices.ranks = 2;
    CHECK(2 * training_flops(sliced, sliced_rows, of_rank).total() == training_flops(sliced, sliced_rows, cut).total());
  }
}

TEST_CASE("every slice has its own activations, and sums over slices wait in lg k + 1 places", "[model]") {
  auto const names = [](Index blocks, Index ranks, bool wide_sums, Storage storage) {
    GptOptions options = in_slices({}, blocks, wide_sums);
    options.slices.ranks = ranks;
    options.slices.rank = ranks - 1;
    std::vector<std::string> all;
    for (PlannedTensor const& tensor : activation_plan(sliced, sliced_rows, storage, options))
      all.push_back(tensor.name);
    return all;
  };
  auto const count = [](std::vector<std::string> const& all, std::string const& begin) {
    return std::ranges::count_if(all, [&](std::string const& name) { return name.starts_with(begin); });
  };
  CHECK(count(names(1, 1, false, Storage::fp32), "partial") == 0);
  CHECK(count(names(2, 2, false, Storage::fp32), "partial") == 0);
  CHECK(count(names(2, 2, true, Storage::bf16), "partial") == 1);
  CHECK(count(names(4, 1, true, Storage::fp32), "partial") == 2); // the third is where the sum belongs
  CHECK(count(names(4, 1, true, Storage::bf16), "partial") == 3);
  std::vector<std::string> const mine = names(4, 2, false, Storage::fp32);
  CHECK(count(mine, "block 1 qkv, slice") == 2);
  CHECK(std::ranges::count(mine, "block 1 qkv, slice 3") == 1);
  CHECK(count(mine, "logits, slice") == 2);
  CHECK(count(mine, "block 1 ln1") == 3); // with its two statistics
}
