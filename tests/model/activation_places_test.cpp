// The activations of a pipeline's stages: their memory against closed forms that are written down here independently,
// their names, and where each part finds the residual stream.

#include "model/activation_plan.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

using namespace trainstone;

namespace {

GptConfig const config{5, 2, 16, 8, 300}; // 384 rows of the token table
MicroBatchShape const shape{64, 8};       // every tensor fills the arena's 64 bytes

struct StageCase {
  ModelStage stage;
  std::uint64_t largest_chunk; ///< blocks
};

/// Of five blocks: in 2 + 2 + 1; in 5 + 0 and 0 + 5; in two stages of two chunks each.
std::vector<StageCase> stage_cases() {
  return {{{true, {0, 1}, false}, 2},
          {{false, {2, 3}, false}, 2},
          {{false, {4}, true}, 1},
          {{true, {0, 1, 2, 3, 4}, false}, 5},
          {{false, {}, true}, 0},
          {{true, {}, false}, 0},
          {{false, {0, 1, 2, 3, 4}, true}, 5},
          {{false, {2, 4}, true, {1, 1}}, 1},
          {{true, {0, 1, 3}, false, {2, 1}}, 2},
          {ModelStage::whole(config), 5}};
}

/// Bytes of a stage with dropout and stored masks, e bytes a value: slots x (embedded, blocks of a chunk)
/// + (inputs + gradients) x n h + what is there once.
std::uint64_t expected_bytes(StageCase const& of, ActivationCopies const& copies, Recompute recompute,
                             std::uint64_t e) {
  auto const slots = static_cast<std::uint64_t>(copies.slots);
  auto const streams = static_cast<std::uint64_t>(copies.inputs + copies.gradients);
  std::uint64_t const n = 512, h = 16, scores = 2 * 8 * n, table_rows = 384;
  std::uint64_t const nh = n * h, with_mask = e + 1; // bytes of a value and of its mask
  std::uint64_t const block = e * (16 * nh + scores) + 2 * nh + scores + 4 * 4 * n;
  std::uint64_t const again = recompute == Recompute::none        ? 0
                              : recompute == Recompute::selective ? with_mask * scores
                                                                  : block - with_mask * nh; // all but the output
  std::uint64_t bytes = slots * of.largest_chunk * (block - again) + streams * e * nh;
  if (of.stage.embed) bytes += slots * with_mask * nh;
  if (of.largest_chunk > 0) bytes += again + e * (3 + 4) * nh;               // d_qkv, d_fc
  if (of.largest_chunk > 0 || of.stage.head) bytes += e * nh;                // branch
  if (of.stage.head) bytes += e * (nh + n * table_rows) + 4 * 2 * n + 4 * n; // final norm, logits, losses
  return bytes;
}

using enum Activation;

} // namespace

TEST_CASE("a stage has slots x what a chunk keeps, inputs, gradients, and all else once", "[model]") {
  StageCase const of = GENERATE(from_range(stage_cases()));
  Recompute const recompute = GENERATE(Recompute::none, Recompute::selective, Recompute::full);
  Storage const storage = GENERATE(Storage::fp32, Storage::bf16);
  GptOptions const options{.dropout = 0.1, .dropout_masks = DropoutMasks::stored, .recompute = {recompute}};
  for (Index slots = 1; slots <= 3; ++slots)
    for (Index inputs = 0; inputs <= 3; ++inputs)
      for (Index gradients = 1; gradients <= 2; ++gradients) {
        INFO(slots << " slots, " << inputs << " inputs, " << gradients << " gradients");
        ActivationCopies const copies{slots, inputs, gradients};
        std::vector<PlannedTensor> const plan = activation_plan(config, shape, storage, options, of.stage, copies);
        CHECK(total_bytes(plan) == expected_bytes(of, copies, recompute, bytes_per_value(storage)));
        std::set<std::string> names;
        for (PlannedTensor const& tensor : plan) CHECK(names.insert(tensor.name).second);
      }
}

TEST_CASE("a place that blocks of two chunks share has what one of them keeps", "[model]") {
  using enum Recompute;
  auto const bytes = [](ModelStage const& stage, std::vector<Recompute> const& recompute) {
    return total_bytes(activation_plan(config, shape, Storage::fp32, {.recompute = recompute}, stage, {3, 3, 1}));
  };
  ModelStage const both{false, {1, 3}, false, {1, 1}}, one{false, {1}, false};
  std::uint64_t const output = 4 * 512 * 16;
  std::uint64_t const again = 4 * (15 * 512 * 16 + 2 * 8 * 512) + 4 * 4 * 512; // all of a block but its output
  CHECK(bytes(both, {none}) == bytes(one, {none}));
  CHECK(bytes(both, {none, none, none, full, none}) == bytes(one, {none}) + again);
  CHECK(bytes(both, {none, full, none, none, none}) == bytes(one, {none}) + again);
  CHECK(bytes(both, {full}) == bytes(one, {full}));
  CHECK(bytes(one, {full}) == bytes(one, {none}) - 3 * again + again);
  CHECK(bytes(one, {full}) > 3 * output);
}

TEST_CASE("the plan of the whole model is the plan of its only stage", "[model]") {
  GptOptions const options{.dropout = 0.1, .dropout_masks = DropoutMasks::stored, .recompute = {Recompute::full}};
  auto const expected = activation_plan(config, shape, Storage::bf16, options);
  auto const plan = activation_plan(config, shape, Storage::bf16, options, ModelStage::whole(config));
  CHECK(std::ranges::equal(plan, expected, [](PlannedTensor const& a, PlannedTensor const& b) {
    return a.name == b.name && a.bytes == b.bytes;
  }));
}

TEST_CASE("names tell copies apart if there are several", "[model]") {
  auto const names = [](ActivationCopies const& copies) {
    std::vector<std::string> all;
    ModelStage const stage{true, {0, 1}, false, {1, 1}};
    for (PlannedTensor const& tensor : activation_plan(config, shape, Storage::fp32, {}, stage, copies))
      if (tensor.name.ends_with("embedded") || tensor.name.ends_with("qkv") || tensor.name.ends_with("d_stream") ||
          tensor.name.find("input") != std::string::npos)
        all.push_back(tensor.name);
    return all;
  };
  using Names = std::vector<std::string>;
  CHECK(names({1, 0, 1}) == Names{"embedded", "block 0 qkv", "d_stream", "d_qkv"});
  CHECK(names({1, 1, 1}) == Names{"input", "embedded", "block 0 qkv", "d_stream", "d_qkv"});
  CHECK(names({2, 3, 2}) == Names{"input 0", "input 1", "input 2", "slot 0 embedded", "slot 0 block 0 qkv",
                                  "slot 1 embedded", "slot 1 block 0 qkv", "gradient 0 d_stream", "gradient 1 d_stream",
                                  "d_qkv"});
}

TEST_CASE("a part begins with the output before it in its chunk, with embedded, or with an input", "[model]") {
  constexpr Index once = PlacedActivation::of_model;
  ActivationBuffers const buffers{.slot = 1, .input = 2, .gradient = 0};
  auto const places = [](ModelStage const& stage) { return ActivationPlaces(stage, {}, {2, 3, 1}); };
  auto const stream = [&](ModelStage const& stage, Index block) {
    return places(stage)(Activation::stream, block, buffers);
  };
  using Place = PlacedActivation;

  ModelStage const first{true, {0, 1, 3}, false, {2, 1}}, last{false, {2, 4}, true, {1, 1}};
  CHECK(stream(first, 0) == Place{embedded, once, 1});
  CHECK(stream(first, 1) == Place{output, 0, 1});
  CHECK(stream(first, 3) == Place{input, once, 2});
  CHECK(stream(last, 2) == Place{input, once, 2});
  CHECK(stream(last, 4) == Place{input, once, 2});
  CHECK(stream(last, 5) == Place{output, 2, 1}); // of head: block 4 has the place of block 2 in a slot
  CHECK(places(last)(output, 4, buffers) == Place{output, 2, 1});
  CHECK(stream({false, {4}, true}, 5) == Place{output, 4, 1});
  CHECK(stream({false, {}, true}, 5) == Place{input, once, 2});
  CHECK(stream({false, {3}, true, {1, 0}}, 5) == Place{input, once, 2});
  CHECK(stream({true, {}, true}, 5) == Place{embedded, once, 1});

  CHECK(places(first).chunk_output(0) == Place{output, 1});
  CHECK(places(first).chunk_output(1) == Place{output, 0});
  CHECK(places({true, {1}, false, {0, 1}}).chunk_output(0) == Place{embedded, once});
  CHECK_THROWS_AS(places({false, {3}, true, {1, 0}}).chunk_output(1), Error);

  CHECK_THROWS_AS(stream(first, 2), Error); // another stage's block
  CHECK_THROWS_AS(places(first)(qkv, 2), Error);
  CHECK_THROWS_AS(places(first)(qkv, 0, {.slot = 2}), Error);
  CHECK_THROWS_AS(places(first)(d_stream, once, {.gradient = 1}), Error);
  CHECK_THROWS_AS(ActivationPlaces(first, {})(input, once), Error);
  CHECK_THROWS_AS(places({true, {0, 1}, false, {1, 2}}), Error);
}
