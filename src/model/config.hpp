#pragma once

// The shape of a GPT-2 model, the named shapes, and which shapes are legal. Plain values without Kokkos, so that
// decks, file readers and tools share them. Knows nothing of batches, data or ranks.

#include "core/error.hpp"
#include "core/storage.hpp"
#include "kernels/attention/attention_provider.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone {

/// A configuration that cannot run: the deck's key at fault, and what is wrong and what would be right.
/// Whoever knows where the key was set adds the place.
struct ConfigProblem {
  std::string key;
  std::string message;
};

/// The problem of a key, with a formatted message.
template <class... Values>
ConfigProblem problem(char const* key, fmt::format_string<Values...> text, Values&&... values) {
  return {key, fmt::format(text, std::forward<Values>(values)...)};
}

struct GptConfig {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t channels = 0;
  std::int64_t context = 0; ///< positions that the model knows: the longest sequence
  std::int64_t vocab = 0;
  std::int64_t vocab_multiple = 128; ///< that the rows of the token table are: see in_slices()

  /// Rows of the token table: vocab, padded for the matrix products.
  std::int64_t padded_vocab() const { return (vocab + vocab_multiple - 1) / vocab_multiple * vocab_multiple; }
  /// With a token table that so many slices can share.
  GptConfig in_slices(std::int64_t slices) const {
    GptConfig config = *this;
    config.vocab_multiple = std::lcm(vocab_multiple, slices);
    return config;
  }
  std::int64_t head_size() const { return channels / heads; }
  /// Whether it is the same model, however its token table is padded.
  bool operator==(GptConfig const& other) const {
    return layers == other.layers && heads == other.heads && channels == other.channels && context == other.context &&
           vocab == other.vocab;
  }
};

/// Which of a model's parts a rank has: all, or those of a pipeline's stage. Blocks keep their numbers.
struct ModelStage {
  bool embed = true;
  std::vector<std::int64_t> blocks; ///< ascending
  bool head = true;
  /// How many of the blocks each chunk has. A chunk is a run of parts without another stage's part between them. Embed
  /// begins the first chunk, head ends the last one. Empty: one chunk has all blocks.
  std::vector<std::int64_t> chunks = {};

  /// Of a rank that runs no part of the model.
  static ModelStage nothing() { return {.embed = false, .blocks = {}, .head = false}; }
  static ModelStage whole(GptConfig const& config) {
    ModelStage all;
    for (std::int64_t block = 0; block < config.layers; ++block) all.blocks.push_back(block);
    return all;
  }
  bool operator==(ModelStage const&) const = default;
};

/// How tensor parallelism cuts every layer: into equal slices, of which each tensor rank has a run. A slice has some of
/// the heads, of the columns of the hidden layer, and of the vocabulary. What a slice computes is the same on any
/// number of tensor ranks. One rank may have all slices.
struct TensorSlices {
  std::int64_t blocks = 1; ///< of the whole model; 1: nothing is cut
  std::int64_t ranks = 1;  ///< of a tensor group; divides `blocks`
  std::int64_t rank = 0;   ///< this one, in its group
  /// Other ranks share the features of the residual stream: each has one of so many equal parts. A weight is cut in its
  /// slices along one dimension, and in these parts along the other one. Source: A 4D Hybrid Algorithm to Scale
  /// Parallel Training to Thousands of GPUs (AxoNN), arXiv:2305.13525.
  std::int64_t feature_parts = 1;
  std::int64_t feature_part = 0; ///< the one that is here

  std::int64_t count() const { return blocks / ranks; } ///< of a rank
  std::int64_t first() const { return rank * count(); } ///< that is here
  bool cuts() const { return blocks > 1; }
  bool are_shared() const { return ranks > 1; } ///< other ranks have others
  bool cut_features() const { return feature_parts > 1; }
  bool have_sharers() const { return are_shared() || cut_features(); } ///< other ranks have a part of the same layers
  bool operator==(TensorSlices const&) const = default;
};

/// No member may be larger, so that sizes in bytes stay inside 64 bits: 12 layers channels^2 + (vocab + context)
/// channels elements are below 2^57.
inline constexpr GptConfig largest_gpt{10'000, 1'000'000, 1'000'000, 1'000'000'000, 1'000'000'000};

enum class AttentionKind {
  materialized, ///< probabilities (T, T) of every head are kept for backward
  flash,        ///< they are computed tile by tile, forward and backward: no memory that grows with T^2
};
enum class DropoutMasks { recomputed, stored };

/// What a block computes a second time, before its backward, so that it need not keep it meanwhile. Blocks that do so
/// share the memory.
enum class Recompute {
  none,
  selective, ///< the probabilities of materialised attention
  full,      ///< all but the block's output and, if masks are stored, the mask of its last dropout
};

constexpr std::string_view to_string(Recompute how) {
  return how == Recompute::none ? "none" : how == Recompute::selective ? "selective" : "full";
}

/// "selective, full"
inline std::string joined(std::vector<Recompute> const& all, std::string_view separator) {
  std::string words;
  for (Recompute const how : all) words += (words.empty() ? "" : std::string(separator)) + std::string(to_string(how));
  return words;
}

/// How a model of that shape is computed.
struct GptOptions {
  AttentionKind attention = AttentionKind::materialized;
  double dropout = 0; ///< rate in training: after the embedding, of attention's probabilities, of both branches
  DropoutMasks dropout_masks = DropoutMasks::recomputed; ///< in backward; flash attention always recomputes its own
  std::vector<Recompute> recompute = {};                 ///< of every block; one value: of all; empty: none
  /// The head computes logits, losses and their gradients for so many equal parts of a micro-batch's rows, one after
  /// the other, so that only one part's logits are there. The gradient of the token table is a sum over the parts, in
  /// order.
  std::int64_t loss_chunks = 1;
  TensorSlices slices = {};
  /// Sums over slices, if there are any, are fp32 until they are complete, whatever values are stored in.
  bool wide_sums = false;
  /// The ranks that share the slices share the positions of every sample outside of products, too: each has a run of
  /// them. Sequence parallelism.
  bool sequence_parallel = false;
  /// Sums over slices in a block are made for so many equal parts of a micro-batch's rows, one after the other, so that
  /// ranks can bring the sum of a part together while they compute the next one.
  std::int64_t row_chunks = 1;
  /// What ranks gather for a product forward is kept for backward, in place of a second gather.
  bool keep_gathered = false;
  AttentionProvider attention_provider = AttentionProvider::flash; ///< who computes attention, if it is of this kind

  bool shares_positions() const { return sequence_parallel && slices.are_shared(); }
  bool chunks_rows() const { return row_chunks > 1 && slices.cuts(); }
  bool keeps_gathered() const { return keep_gathered && shares_positions(); }
  bool sums_wide() const { return wide_sums && slices.cuts(); }
  bool splits_loss() const { return loss_chunks > 1; }
  bool keeps_masks() const { return dropout > 0 && dropout_masks == DropoutMasks::stored; }
  Recompute recompute_of(std::int64_t block) const {
    if (recompute.empty()) return Recompute::none;
    return recompute.size() == 1 ? recompute.front() : recompute[static_cast<std::size_t>(block)];
  }
};

/// "materialized", or who computes the other kind: "flash", "tensor_cores", "cudnn", "wgmma".
constexpr std::string_view describe_attention(GptOptions const& options) {
  return options.attention == AttentionKind::materialized ? "materialized" : to_string(options.attention_provider);
}

/// The types in which a model's numbers are stored. Arithmetic, statistics and losses are fp32.
struct ModelStorage {
  Storage values = Storage::fp32;    ///< parameters and activations
  Storage gradients = Storage::fp32; ///< of parameters: as the values, or fp32
};

/// Where the shape and the initial parameters come from and where the final ones go; empty = none.
struct ModelSetup {
  std::string preset; ///< the shape's name; values given one by one replace the preset's
  std::string load;   ///< file in llm.c's format, of the configured shape
  std::string save;   ///< file in llm.c's format, written after the last step
};

struct GptPreset {
  std::string_view name;
  GptConfig config;
  double nominal; ///< parameters, as the model is called; exact counts follow from the shape
};

/// Presets of other models (bert-large) give the shape of a GPT.
inline constexpr std::array<GptPreset, 8> gpt_presets{{
    {"gpt2", {12, 12, 768, 1024, 50257}, 0.124e9},
    {"gpt2-medium", {24, 16, 1024, 1024, 50257}, 0.355e9},
    {"gpt2-large", {36, 20, 1280, 1024, 50257}, 0.774e9},
    {"gpt2-xl", {48, 25, 1600, 1024, 50257}, 1.5e9},
    {"bert-large", {24, 16, 1024, 512, 30522}, 0.32e9},
    {"turing-nlg", {78, 28, 4256, 1024, 50257}, 17.2e9},
    {"gpt3-6.7b", {32, 32, 4096, 2048, 50257}, 6.7e9},
    {"gpt3-175b", {96, 96, 12288, 2048, 50257}, 175e9},
}};

inline std::optional<GptConfig> find_preset(std::string_view name) {
  for (GptPreset const& preset : gpt_presets) {
    if (preset.name == name) return preset.config;
  }
  return std::nullopt;
}

/// "4 or 8": the divisors of `number` below and above `wanted`, which is none itself.
inline std::string nearest_divisors(std::int64_t number, std::int64_t wanted) {
  std::int64_t below = wanted < number ? wanted : number;
  while (number % below != 0) --below;
  std::int64_t above = wanted + 1;
  while (above < number && number % above != 0) ++above;
  return above <= number ? fmt::format("{} or {}", below, above) : fmt::format("{}", below);
}

/// "4 or 8": the powers of two around `wanted`, which is at least 1 and none itself.
inline std::string nearest_powers_of_two(std::int64_t wanted) {
  std::uint64_t const below = std::bit_floor(static_cast<std::uint64_t>(wanted));
  return fmt::format("{} or {}", below, 2 * below);
}

/// The problem of a shape, if there is one.
inline std::optional<ConfigProblem> find_problem(GptConfig const& config) {
  struct Extent {
    char const* key;
    std::int64_t value;
  };
  for (Extent const& extent : {Extent{"model.layers", config.layers}, Extent{"model.heads", config.heads},
                               Extent{"model.channels", config.channels}, Extent{"model.context", config.context},
                               Extent{"model.vocab", config.vocab}}) {
    if (extent.value >= 1) continue;
    return problem(extent.key, "{} = {}: must be at least 1 (or give model.preset)", extent.key, extent.value);
  }
  if (config.channels % config.heads != 0) {
    std::int64_t const below = config.channels / config.heads * config.heads;
    std::string const channels =
        below > 0 ? fmt::format("{} or {}", below, below + config.heads) : fmt::format("{}", config.heads);
    return problem("model.heads",
                   "model.heads = {} does not divide model.channels = {}; nearest legal values: heads {} or "
                   "channels {}",
                   config.heads, config.channels, nearest_divisors(config.channels, config.heads), channels);
  }
  return std::nullopt;
}

/// Throws InputError when the shape is not legal.
inline void require_valid(GptConfig const& config) {
  if (std::optional<ConfigProblem> const problem = find_problem(config)) throw InputError(problem->message);
}

} // namespace trainstone
