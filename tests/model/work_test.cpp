// The plans of the model against closed forms that are written down here independently.

#include "model/work.hpp"

#include "core/stored.hpp"
#include "model/activations.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

using namespace trainstone;

namespace {
struct Shape {
  GptConfig config;
  MicroBatchShape batch;
};
Shape const shapes[] = {{{2, 4, 64, 32, 128}, {4, 32}}, {{3, 3, 36, 19, 97}, {5, 19}}, {{1, 1, 1, 1, 1}, {1, 1}}};
} // namespace

TEST_CASE("executed FLOPs are 2(12 L h^2 + Vp h) per token and twice that backward, plus causal attention", "[model]") {
  auto const [config, batch] = GENERATE(from_range(std::begin(shapes), std::end(shapes)));
  auto const h = static_cast<std::uint64_t>(config.channels), layers = static_cast<std::uint64_t>(config.layers);
  auto const tokens = static_cast<std::uint64_t>(batch.rows()), t = static_cast<std::uint64_t>(batch.sequence);
  auto const padded = static_cast<std::uint64_t>(config.padded_vocab());
  std::uint64_t const gemm = tokens * 2 * (12 * layers * h * h + padded * h);
  // 2 products of 2 h per pair of positions that see each other
  std::uint64_t const attention = layers * static_cast<std::uint64_t>(batch.batch) * 4 * h * (t * (t + 1) / 2);
  CHECK(evaluation_flops(config, batch).gemm == gemm);
  CHECK(evaluation_flops(config, batch).attention == attention);
  CHECK(training_flops(config, batch).gemm == 3 * gemm);
  CHECK(training_flops(config, batch).attention == 3 * attention);
}

TEST_CASE("the activation plan adds up to the closed form without dropout, statistics in fp32", "[model]") {
  Storage const storage = GENERATE(Storage::fp32, Storage::bf16, Storage::fp16);
  auto const [config, batch] = GENERATE(from_range(std::begin(shapes), std::end(shapes)));
  // extents whose every tensor is a multiple of the arena's 64 bytes, so that no rounding hides a difference
  MicroBatchShape const even{32 * batch.batch, batch.sequence};
  auto const n = static_cast<std::uint64_t>(even.rows()), c = static_cast<std::uint64_t>(config.channels);
  auto const t = static_cast<std::uint64_t>(even.sequence), layers = static_cast<std::uint64_t>(config.layers);
  auto const heads = static_cast<std::uint64_t>(config.heads);
  std::uint64_t const block = 16 * n * c + heads * t * n; // ln1 qkv att middle ln2 fc gelu output, scores
  std::uint64_t const ends = 2 * n * c + n * static_cast<std::uint64_t>(config.padded_vocab());
  std::uint64_t const work = n * c * (1 + 1 + 3 + 4);          // branch, d_stream, d_qkv, d_fc
  std::uint64_t const statistics = layers * 4 * n + 2 * n + n; // mean and rstd of the layer norms; losses
  CHECK(total_bytes(activation_plan(config, even, storage)) ==
        bytes_per_value(storage) * (layers * block + ends + work) + 4 * statistics);
}

TEST_CASE("stored masks take a byte per element, and flash attention nothing that grows with T^2", "[model]") {
  Storage const storage = GENERATE(Storage::fp32, Storage::bf16, Storage::fp16);
  auto const [config, batch] = GENERATE(from_range(std::begin(shapes), std::end(shapes)));
  MicroBatchShape const even{64 * batch.batch, batch.sequence}; // every tensor fills the arena's 64 bytes
  auto const n = static_cast<std::uint64_t>(even.rows()), c = static_cast<std::uint64_t>(config.channels);
  auto const t = static_cast<std::uint64_t>(even.sequence), layers = static_cast<std::uint64_t>(config.layers);
  auto const heads = static_cast<std::uint64_t>(config.heads);
  auto const bytes = [&](GptOptions const& options) {
    return total_bytes(activation_plan(config, even, storage, options));
  };
  GptOptions const materialized{.dropout = 0.1}, flash{AttentionKind::flash, 0.1};
  GptOptions const stored{.dropout = 0.1, .dropout_masks = DropoutMasks::stored};
  GptOptions const flash_stored{AttentionKind::flash, 0.1, DropoutMasks::stored};
  std::uint64_t const branches = (1 + 2 * layers) * n * c, scores = layers * heads * t * n;
  CHECK(bytes(materialized) == bytes({}));
  CHECK(bytes(stored) == bytes(materialized) + branches + scores);
  CHECK(bytes(flash_stored) == bytes(flash) + branches);
  CHECK(bytes(flash) == bytes(materialized) - bytes_per_value(storage) * scores + 4 * layers * heads * n);
  CHECK(bytes({.dropout = 0, .dropout_masks = DropoutMasks::stored}) == bytes({}));
}

TEST_CASE("binding the activations uses the arena to the last byte of the plan", "[model]") {
  GptOptions const options{GENERATE(AttentionKind::materialized, AttentionKind::flash), GENERATE(0.0, 0.1),
                           DropoutMasks::stored};
  auto const [config, batch] = GENERATE(from_range(std::begin(shapes), std::end(shapes)));
  MemoryLedger ledger;
  Storage const storage = GENERATE(Storage::fp32, Storage::bf16, Storage::fp16);
  std::uint64_t const planned = total_bytes(activation_plan(config, batch, storage, options));
  Allocation const memory(ledger, MemoryCategory::activations, "test", planned);
  Arena arena(memory.bytes());
  Activations const all = bind_activations(config, batch, arena, storage, options);
  CHECK(arena.used() == planned);
  with_storage(storage, [&]<class T>() {
    CHECK(std::get<ActivationsOf<T>>(all).logits.extent(1) == static_cast<std::size_t>(config.padded_vocab()));
  });
  CHECK(ledger.current()[MemoryCategory::activations] == planned);
}
