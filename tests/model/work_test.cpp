// The plans of the model against closed forms that are written down here independently.

#include "model/work.hpp"

#include "core/stored.hpp"
#include "model/activations.hpp"
#include "model/part_lists.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <map>

using namespace trainstone;

namespace {
struct Shape {
  GptConfig config;
  MicroBatchShape batch;
};
Shape const shapes[] = {{{2, 4, 64, 32, 128}, {4, 32}}, {{3, 3, 36, 19, 97}, {5, 19}}, {{1, 1, 1, 1, 1}, {1, 1}}};

/// How often each product is computed in forward, and in backward.
std::map<GemmShape, std::int64_t> counts(std::vector<GemmUse> const& uses) {
  std::map<GemmShape, std::int64_t> counted;
  for (GemmUse const& use : uses) counted[use.shape] += use.count;
  return counted;
}

/// The model's linear layers y (N, out) = x (N, in) W^T, written down by hand.
struct LinearLayer {
  Index out, in;
  std::int64_t count;
  EpilogueKind forward, input_gradient, weight_gradient;
};
std::vector<LinearLayer> linear_layers(GptConfig const& config) {
  Index const c = config.channels, l = config.layers;
  using enum EpilogueKind;
  return {{3 * c, c, l, bias, none, bias_gradient},
          {c, c, l, none, none, bias_gradient}, // its bias is added with the residual
          {4 * c, c, l, bias_gelu, none, bias_gradient},
          {c, 4 * c, l, none, gelu_gradient, bias_gradient}, // through the GELU before it
          {config.padded_vocab(), c, 1, none, none, none}};
}

std::set<Activation> written(GptOptions const& options) { return activations_written(PartKind::attention, options); }
} // namespace

TEST_CASE("the products are those of five linear layers: forward, input gradients and weight gradients", "[model]") {
  auto const [config, batch] = GENERATE(from_range(std::begin(shapes), std::end(shapes)));
  ModelStorage const storage =
      GENERATE(ModelStorage{}, ModelStorage{Storage::bf16, Storage::fp32}, ModelStorage{Storage::fp16, Storage::fp16});
  Write const mode = GENERATE(Write::overwrite, Write::add);
  std::map<GemmShape, std::int64_t> forward, backward;
  Index const n = batch.rows();
  Storage const values = storage.values, gradients = storage.gradients;
  for (auto const& [out, in, count, of_forward, of_input, of_weight] : linear_layers(config)) {
    forward[{n, out, in, Transpose::no, Transpose::yes, Write::overwrite, values, values, of_forward}] += count;
    backward[{n, in, out, Transpose::no, Transpose::no, Write::overwrite, values, values, of_input}] += count;
    backward[{out, in, n, Transpose::yes, Transpose::no, mode, values, gradients, of_weight}] += count;
  }
  CHECK(counts(forward_gemms(config, batch, storage)) == forward);
  CHECK(counts(backward_gemms(config, batch, mode, storage)) == backward);
  std::set<GemmShape> const all = gemm_shapes(config, batch, storage);
  for (auto const* products : {&forward, &backward})
    CHECK(std::ranges::all_of(*products, [&](auto const& product) { return all.contains(product.first); }));
}

TEST_CASE("besides its products a block starts 4 kernels forward, 5 backward and 4 for dropout", "[model]") {
  auto const [config, batch] = GENERATE(from_range(std::begin(shapes), std::end(shapes)));
  AttentionKind const attention = GENERATE(AttentionKind::materialized, AttentionKind::flash);
  double const dropout = GENERATE(0.0, 0.1);
  Storage const stored = GENERATE(Storage::fp32, Storage::fp16);
  GemmProvider const provider = GENERATE(from_range(built_gemm_providers()));
  GptOptions const options{.attention = attention, .dropout = dropout};
  ModelStorage const storage{stored, stored};
  auto const launches = [&](std::vector<GemmUse> const& uses) {
    std::uint64_t sum = 0;
    for (GemmUse const& use : uses) sum += static_cast<std::uint64_t>(gemm_launches(provider, use.shape) * use.count);
    return sum;
  };
  auto const layers = static_cast<std::uint64_t>(config.layers);
  // forward: two norms (one with the residual), attention, residual; embedding, last norm, losses
  std::uint64_t const forward = launches(forward_gemms(config, batch, storage)) + 4 * layers + 3;
  CHECK(evaluation_launches(config, batch, provider, storage) == forward);
  // backward: two norms (of inputs and of parameters), attention; last norm, tables of tokens and positions
  std::uint64_t const backward =
      launches(backward_gemms(config, batch, Write::add, storage)) + (2 * 2 + 1) * layers + 2 + 2;
  std::uint64_t const drops = dropout > 0 ? 2 * (2 * layers + 1) : 0; // forward and backward of each site
  CHECK(training_launches(config, batch, options, Write::add, provider, storage) == forward + backward + drops);
}

TEST_CASE("parts and passes have the kernels that the order of forward and backward says", "[model]") {
  std::vector<KernelUse> const uses = training_kernels({3, 2, 16, 8, 30}, {2, 8});
  std::vector<std::string> names;
  for (KernelUse const& use : uses)
    if (use.part == PartKind::mlp) names.push_back(use.name);
  CHECK(names == std::vector<std::string>{"fc forward", "fcproj forward", "residual::forward", "fcproj weight gradient",
                                          "fcproj input gradient", "fc input gradient", "fc weight gradient",
                                          "layernorm::backward", "layernorm::backward_parameters"});
  for (KernelUse const& use : uses) {
    CHECK(use.count == (use.part == PartKind::mlp || use.part == PartKind::attention ? 3 : 1));
    CHECK((use.pass == Pass::loss) == (use.name == "cross_entropy::backward"));
  }
  CHECK(uses.front().name == "embedding::forward");
  CHECK(uses.back().name == "embedding::backward_positions");
}

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

TEST_CASE("the plan holds what parts keep for backward, the losses and work space, and nothing else", "[model]") {
  GptOptions const options{GENERATE(AttentionKind::materialized, AttentionKind::flash), GENERATE(0.0, 0.1),
                           GENERATE(DropoutMasks::recomputed, DropoutMasks::stored)};
  using enum Activation;
  std::set<Activation> all{losses, branch, d_stream, d_qkv, d_fc}, written;
  for (PartKind const kind : part_kinds) {
    all.merge(kept_for_backward(kind, options));
    written.merge(activations_written(kind, options));
  }
  CHECK(all == written);
}

TEST_CASE("a part keeps what its backward needs", "[model]") {
  using enum Activation;
  using Kept = std::set<Activation>;
  GptOptions const flash{AttentionKind::flash, 0.1, DropoutMasks::stored};
  CHECK(kept_for_backward(PartKind::embed, {}) == Kept{embedded});
  CHECK(kept_for_backward(PartKind::attention, {}) ==
        Kept{ln1, ln1_mean, ln1_rstd, qkv, probabilities, attention, middle, ln2, ln2_mean, ln2_rstd});
  CHECK(kept_for_backward(PartKind::attention, flash) ==
        Kept{ln1, ln1_mean, ln1_rstd, qkv, log_sum_exp, attention, middle, ln2, ln2_mean, ln2_rstd, attproj_mask});
  CHECK(kept_for_backward(PartKind::mlp, {}) == Kept{fc, gelu, output});
  CHECK(kept_for_backward(PartKind::mlp, flash) == Kept{fc, gelu, output, fcproj_mask});
  CHECK(kept_for_backward(PartKind::head, {}) == Kept{lnf, lnf_mean, lnf_rstd, logits});
}

TEST_CASE("a part reads what it and the part before keep, and the stream", "[model]") {
  using enum Activation;
  using Read = std::set<Activation>;
  CHECK(read_by_forward(PartKind::embed, {}).empty());
  CHECK(read_by_forward(PartKind::attention, {}) == Read{stream});
  CHECK(read_by_forward(PartKind::mlp, {}) == Read{middle, ln2});
  CHECK(read_by_forward(PartKind::head, {}) == Read{stream});
  CHECK(read_by_loss({}) == Read{logits});
  CHECK(read_by_backward(PartKind::embed, {}).empty());
  CHECK(read_by_backward(PartKind::attention, {}) ==
        Read{ln1, ln1_mean, ln1_rstd, qkv, probabilities, attention, stream});
  CHECK(read_by_backward(PartKind::mlp, {}) == Read{middle, ln2, ln2_mean, ln2_rstd, fc, gelu});
  CHECK(read_by_backward(PartKind::head, {}) == Read{lnf, lnf_mean, lnf_rstd, logits, stream});
}

TEST_CASE("what a part reads is kept by some part, with any options", "[model]") {
  GptOptions const options{GENERATE(AttentionKind::materialized, AttentionKind::flash), GENERATE(0.0, 0.1),
                           GENERATE(DropoutMasks::recomputed, DropoutMasks::stored)};
  std::set<Activation> kept{Activation::stream}, read = read_by_loss(options);
  for (PartKind const kind : part_kinds) {
    kept.merge(kept_for_backward(kind, options));
    read.merge(read_by_forward(kind, options));
    read.merge(read_by_backward(kind, options));
  }
  CHECK(std::ranges::includes(kept, read));
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

TEST_CASE("blocks that compute again keep their output, or all but the scores, and share the rest", "[model]") {
  Storage const storage = GENERATE(Storage::fp32, Storage::bf16);
  auto const [config, batch] = GENERATE(from_range(std::begin(shapes), std::end(shapes)));
  MicroBatchShape const even{32 * batch.batch, batch.sequence};
  auto const n = static_cast<std::uint64_t>(even.rows()), c = static_cast<std::uint64_t>(config.channels);
  auto const t = static_cast<std::uint64_t>(even.sequence), layers = static_cast<std::uint64_t>(config.layers);
  auto const heads = static_cast<std::uint64_t>(config.heads), e = static_cast<std::uint64_t>(bytes_per_value(storage));
  auto const bytes = [&](std::vector<Recompute> const& recompute) {
    return total_bytes(activation_plan(config, even, storage, {.recompute = recompute}));
  };
  std::uint64_t const block = e * (16 * n * c + heads * t * n) + 16 * n, output = e * n * c, scores = e * heads * t * n;
  CHECK(bytes({Recompute::full}) == bytes({}) - layers * block + layers * output + block - output);
  CHECK(bytes({Recompute::selective}) == bytes({}) - layers * scores + scores);
  CHECK(bytes({Recompute::none}) == bytes({}));
  std::vector<Recompute> first(static_cast<std::size_t>(config.layers), Recompute::none);
  first.front() = Recompute::full;
  CHECK(bytes(first) == bytes({})); // of one block nothing can be shared
}

TEST_CASE("a loss in chunks keeps the logits of one chunk and does the same work", "[model]") {
  Storage const storage = GENERATE(Storage::fp32, Storage::bf16);
  GptConfig const config{3, 2, 16, 8, 300};
  MicroBatchShape const batch{64, 8};
  GptOptions const chunks{.loss_chunks = 8};
  std::uint64_t const logits = 512 * 384 * bytes_per_value(storage);
  CHECK(total_bytes(activation_plan(config, batch, storage, chunks)) ==
        total_bytes(activation_plan(config, batch, storage)) - logits / 8 * 7);
  CHECK(training_flops(config, batch, chunks).gemm == training_flops(config, batch).gemm);
  CHECK(evaluation_flops(config, batch, chunks).gemm == evaluation_flops(config, batch).gemm);
}

TEST_CASE("what is computed again is what backward reads, without the last product", "[model]") {
  using enum Activation;
  using Set = std::set<Activation>;
  CHECK(recomputed(Recompute::none, {}).empty());
  CHECK(recomputed(Recompute::selective, {}) == Set{probabilities});
  CHECK(recomputed(Recompute::full, {}) ==
        Set{ln1, ln1_mean, ln1_rstd, qkv, probabilities, attention, middle, ln2, ln2_mean, ln2_rstd, fc, gelu});
  GptOptions const stored{.dropout = 0.1, .dropout_masks = DropoutMasks::stored};
  CHECK(recomputed(Recompute::selective, stored) == Set{probabilities, attention_mask});
  CHECK_FALSE(recomputed(Recompute::full, stored).contains(fcproj_mask)); // of the last product, which is kept
  CHECK(read_by_recompute(PartKind::attention, Recompute::full, {}) == Set{stream});
  CHECK(read_by_recompute(PartKind::attention, Recompute::selective, {}) == Set{qkv});
  CHECK(read_by_recompute(PartKind::mlp, Recompute::full, {}) == Set{ln2});
}

TEST_CASE("computing a block again takes 16 n h^2 of its forward's 24, and attention's forward or half of it",
          "[model]") {
  GptConfig const config{3, 2, 16, 8, 30};
  MicroBatchShape const batch{2, 8};
  std::uint64_t const n = 16, h = 16, forward = 2 * 2 * 2 * 8 * 8 * 9; // 2 samples, 2 heads of 8, 8 x 9 / 2 pairs
  auto const flops = [&](PartKind kind, Recompute how) {
    return flops_of(part_kernels({.part = kind, .pass = Pass::recompute, .recompute = how}, config, batch));
  };
  CHECK(flops(PartKind::attention, Recompute::full).gemm == 2 * n * 4 * h * h);
  CHECK(flops(PartKind::mlp, Recompute::full).gemm == 2 * n * 4 * h * h);
  CHECK(flops(PartKind::attention, Recompute::full).attention == forward);
  CHECK(flops(PartKind::attention, Recompute::selective).attention == forward / 2);
  CHECK(flops(PartKind::attention, Recompute::selective).gemm == 0);
  CHECK(flops(PartKind::mlp, Recompute::selective).total() == 0);
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

TEST_CASE("attention on tensor cores is planned on any machine: a scratch and a kernel more", "[model]") {
  GptConfig const config{3, 4, 256, 64, 128};
  MicroBatchShape const batch{2, 64};
  ModelStorage const storage{Storage::bf16, Storage::bf16};
  for (Index const blocks : {1, 2}) {
    GptOptions const flash{.attention = AttentionKind::flash, .slices = {.blocks = blocks}};
    GptOptions tensor_cores = flash;
    tensor_cores.attention_provider = AttentionProvider::tensor_cores;
    auto const bytes = [&](GptOptions const& options) {
      return total_bytes(activation_plan(config, batch, Storage::bf16, options));
    };
    auto const slices = static_cast<std::uint64_t>(blocks);
    CHECK(bytes(tensor_cores) == bytes(flash) + 2 * 64 * (4 / slices) * 4); // B T (NH of a slice), fp32
    auto const launches = [&](GptOptions const& options) {
      return training_launches(config, batch, options, Write::add, GemmProvider::kokkos, storage);
    };
    CHECK(launches(tensor_cores) == launches(flash) + 3 * slices);
    // the tile of 64 queries and 64 keys, which warps of 32 rows go over: all of it forward, three quarters of it, and
    // a tile of queries behind the sequence, backward; 3 blocks, 2 samples, 4 heads of 64
    std::uint64_t const of_pair = 3 * 2 * 4 * 2 * 64;
    std::uint64_t const forward = 32 * (64 + 64) + 2 * 32 * 64, queries = 32 * (32 + 64) + 2 * 32 * 64,
                        keys = 32 * (64 + 32);
    CHECK(training_flops(config, batch, tensor_cores).attention == (2 * forward + 3 * queries + 4 * keys) * of_pair);
    CHECK(training_flops(config, batch, tensor_cores).gemm == training_flops(config, batch, flash).gemm);
    CHECK(written(tensor_cores).contains(Activation::scratch));
    CHECK_FALSE(written(flash).contains(Activation::scratch));
    for (KernelUse const& use : training_kernels(config, batch, tensor_cores, Write::add, storage))
      CHECK_FALSE(use.name.starts_with("flash_attention"));
  }
  GptOptions const materialized{.attention_provider = AttentionProvider::tensor_cores}; // nobody asks
  CHECK(total_bytes(activation_plan(config, batch, Storage::bf16, materialized)) ==
        total_bytes(activation_plan(config, batch, Storage::bf16)));
}

TEST_CASE("attention by cuDNN is planned on any machine: a workspace of all pairs, and no kernel more", "[model]") {
  GptConfig const config{3, 4, 256, 64, 128};
  MicroBatchShape const batch{2, 64};
  ModelStorage const storage{Storage::bf16, Storage::bf16};
  for (Index const blocks : {1, 2}) {
    GptOptions const flash{.attention = AttentionKind::flash, .slices = {.blocks = blocks}};
    GptOptions cudnn = flash;
    cudnn.attention_provider = AttentionProvider::cudnn;
    auto const bytes = [&](GptOptions const& options) {
      return total_bytes(activation_plan(config, batch, Storage::bf16, options));
    };
    // B NH of a slice, times 64 positions of 128 keys in 2 bytes, and 64 sums of 4 bytes; lengths and slack are 272
    // bytes, in lines of 64
    auto const heads = static_cast<std::uint64_t>(2 * 4 / blocks);
    CHECK(bytes(cudnn) == bytes(flash) + heads * (2 * 64 * 128 + 4 * 64) + 320);
    auto const launches = [&](GptOptions const& options) {
      return training_launches(config, batch, options, Write::add, GemmProvider::kokkos, storage);
    };
    CHECK(launches(cudnn) == launches(flash));
    // 3 blocks, 2 samples, 4 heads of 64 channels, 64 positions: 7 products over 64 x 65 / 2 pairs
    CHECK(training_flops(config, batch, cudnn).attention == 7 * std::uint64_t{2} * 64 * (3 * 2 * 4) * (64 * 65 / 2));
    CHECK(training_flops(config, batch, cudnn).gemm == training_flops(config, batch, flash).gemm);
    CHECK(written(cudnn).contains(Activation::scratch));
  }
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
  Activations const all(config, batch, arena, storage, options);
  CHECK(arena.used() == planned);
  CHECK(all.matrix(Activation::logits, -1).columns == config.padded_vocab());
  CHECK(all.matrix(Activation::stream, 0).data == all.matrix(Activation::embedded, -1).data);
  CHECK(all.matrix(Activation::stream, config.layers).data == all.matrix(Activation::output, config.layers - 1).data);
  CHECK((all.mask(Activation::attproj_mask, 0).size() > 0) == options.keeps_masks());
  CHECK(ledger.current()[MemoryCategory::activations] == planned);
}
