#include "lectures/taught_activations.hpp"

#include "model/activation_plan.hpp"
#include "model/parameter_table.hpp"
#include "model/work.hpp"
#include "parallel/plan/recipe.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

constexpr TaughtBytes taught_block{34, 5}, taught_selective{34, 0}, taught_full{2, 0};

GptOptions const masks_stored{.dropout = 0.1, .dropout_masks = DropoutMasks::stored};
GptOptions const masks_recomputed{.dropout = 0.1};
GptOptions const flash{.attention = AttentionKind::flash, .dropout = 0.1};

GptPreset const& gpt3() { return *std::ranges::find(gpt_presets, activations_model, &GptPreset::name); }

MicroBatchShape one_sequence(GptConfig const& config) { return {1, config.context}; }

/// What the blocks keep of one sequence in 16 bits, beside what they compute again: all blocks keep the same.
class KeptByBlock {
public:
  KeptByBlock(GptConfig const& config, GptOptions options, Recompute recompute = Recompute::none) {
    options.recompute = {recompute};
    m_plan = activation_plan(config, one_sequence(config), Storage::bf16, options);
  }

  /// Nothing if the plan has no such tensor.
  double operator[](Activation what) const {
    auto const found = std::ranges::find(m_plan, to_string(PlacedActivation{what, 0}), &PlannedTensor::name);
    return found == m_plan.end() ? 0 : static_cast<double>(found->bytes);
  }

  double all() const {
    double sum = 0;
    for (PlannedTensor const& tensor : m_plan)
      if (tensor.name.starts_with("block 0 ")) sum += static_cast<double>(tensor.bytes);
    return sum;
  }

private:
  std::vector<PlannedTensor> m_plan;
};

KeptTensorRow tensor_row(std::string const& kind, TaughtBytes taught, std::vector<Activation> const& tensors,
                         KeptByBlock const& kept) {
  KeptTensorRow row{kind, taught, {}, 0};
  for (Activation const what : tensors) {
    std::string const name = to_string(PlacedActivation{what, -1});
    row.tensors += row.tensors.empty() ? name : ", " + name;
    row.kept += kept[what];
  }
  return row;
}

std::vector<KeptTensorRow> tensor_rows() {
  using enum Activation;
  KeptByBlock const kept(gpt3().config, masks_stored);
  return {
      tensor_row("input of the QKV product", {2, 0}, {ln1}, kept),
      tensor_row("query, key, value", {6, 0}, {qkv}, kept),
      tensor_row("softmax", {0, 2}, {probabilities}, kept),
      tensor_row("mask of its dropout", {0, 1}, {attention_mask}, kept),
      tensor_row("result of its dropout", {0, 2}, {}, kept),
      tensor_row("input of the projection", {2, 0}, {attention}, kept),
      tensor_row("mask of its dropout", {1, 0}, {attproj_mask}, kept),
      tensor_row("input of the first linear layer", {2, 0}, {ln2}, kept),
      tensor_row("input of GELU", {8, 0}, {fc}, kept),
      tensor_row("input of the second linear layer", {8, 0}, {gelu}, kept),
      tensor_row("mask of its dropout", {1, 0}, {fcproj_mask}, kept),
      tensor_row("inputs of both norms", {4, 0}, {middle, output}, kept),
      tensor_row("statistics of both norms, fp32", {0, 0}, {ln1_mean, ln1_rstd, ln2_mean, ln2_rstd}, kept),
  };
}

/// The sums after so many rows.
std::vector<RunningTotal> running_totals(std::vector<KeptTensorRow> const& rows) {
  std::vector<RunningTotal> totals{
      {5, "5bss + 8sbh", {}, 0}, {7, "5abss + 11sbh", {}, 0}, {rows.size(), "5abss + 34sbh", {}, 0}};
  for (RunningTotal& total : totals)
    for (std::size_t i = 0; i < total.rows; ++i) {
      total.taught.sbh += rows[i].taught.sbh;
      total.taught.abss += rows[i].taught.abss;
      total.kept += rows[i].kept;
    }
  return totals;
}

/// \param[in] block  bytes of one block and one sequence
KeptBytes scaled(double block) {
  GptConfig const& config = gpt3().config;
  double const sequences = taught_batch_tokens / static_cast<double>(config.context);
  double const sample = static_cast<double>(config.layers) * block;
  return {.block = block * sequences, .batch = sample * sequences, .sample = sample};
}

std::vector<KeptRow> way_rows() {
  GptConfig const& config = gpt3().config;
  auto const taught = [&](TaughtBytes const& bytes) { return scaled(bytes.of_sample(config)); };
  KeptByBlock const stored(config, masks_stored), recomputed(config, masks_recomputed), tiled(config, flash);
  KeptByBlock const selective(config, masks_recomputed, Recompute::selective);
  KeptByBlock const full(config, masks_recomputed, Recompute::full);
  constexpr double t = paper_tensor_ranks;
  GptOptions of_rank = masks_recomputed;
  of_rank.slices = {.blocks = paper_tensor_ranks, .ranks = paper_tensor_ranks};
  KeptByBlock const sliced(config, of_rank);
  of_rank.sequence_parallel = true;
  KeptByBlock const positions(config, of_rank);
  return {
      {"attention's core", "8 sbh + 5 abss", taught({8, 5}), "", {}},
      {"attention", "11 sbh + 5 abss", taught({11, 5}), "", {}},
      {"all, masks stored", "34 sbh + 5 abss", taught(taught_block), "34 sbh + 3 abss", scaled(stored.all())},
      {"all, masks recomputed", "", {}, "32 sbh + 2 abss", scaled(recomputed.all())},
      {"all, flash attention", "", {}, "32 sbh", scaled(tiled.all())},
      {"selective recomputation", "34 sbh", taught(taught_selective), "32 sbh", scaled(selective.all())},
      {"full recomputation", "2 sbh", taught(taught_full), "2 sbh", scaled(full.all())},
      {fmt::format("{} tensor ranks, each", paper_tensor_ranks), "(10 + 24/t) sbh + 5 abss/t",
       taught({10 + 24 / t, 5 / t}), "(8 + 24/t) sbh + 2 abss/t", scaled(sliced.all()), true},
      {"same, sequence parallel", "34 sbh/t + 5 abss/t", taught({34 / t, 5 / t}), "32 sbh/t + 2 abss/t",
       scaled(positions.all()), true},
  };
}

KeptOfModelRow model_row(GptPreset const& preset) {
  GptConfig const& config = preset.config;
  auto const layers = static_cast<double>(config.layers);
  KeptByBlock const kept(config, masks_recomputed), tiled(config, flash);
  KeptByBlock const selective(config, masks_recomputed, Recompute::selective);
  KeptByBlock const full(config, masks_recomputed, Recompute::full);
  return {.name = std::string(preset.name),
          .context = config.context,
          .state =
              static_cast<double>(recipe(RecipeName::mixed16).total() * ParameterTable(config, 1).model_parameters()),
          .taught = layers * taught_block.of_sample(config),
          .taught_selective = layers * taught_selective.of_sample(config),
          .taught_full = layers * taught_full.of_sample(config),
          .kept = layers * kept.all(),
          .kept_flash = layers * tiled.all(),
          .kept_selective = layers * selective.all(),
          .kept_full = layers * full.all(),
          .block_again = kept.all()};
}

ModelFlops block_again(GptConfig const& config, Recompute how) {
  ModelFlops sum;
  for (PartKind const kind : {PartKind::attention, PartKind::mlp}) {
    PartPass const again{.part = kind, .pass = Pass::recompute, .recompute = how};
    ModelFlops const flops = flops_of(part_kernels(again, config, one_sequence(config)));
    sum.gemm += flops.gemm;
    sum.attention += flops.attention;
  }
  return sum;
}

RecomputationRow recomputation_row(GptPreset const& preset) {
  GptConfig const& config = preset.config;
  std::vector<KernelUse> of_block = training_kernels(config, one_sequence(config));
  std::erase_if(of_block,
                [](KernelUse const& use) { return use.part == PartKind::embed || use.part == PartKind::head; });
  for (KernelUse& use : of_block) use.count = 1;
  ModelFlops const once = flops_of(of_block), full = block_again(config, Recompute::full);
  auto const block = static_cast<double>(once.total()), all = static_cast<double>(full.total());
  auto const selective = static_cast<double>(block_again(config, Recompute::selective).total());
  auto const blocks = static_cast<double>(config.layers);
  auto const step = static_cast<double>(training_flops(config, one_sequence(config)).total());
  return {.name = std::string(preset.name),
          .full_products = static_cast<double>(full.gemm) / static_cast<double>(once.gemm),
          .full_block = all / block,
          .full_step = blocks * all / step,
          .selective_block = selective / block,
          .selective_step = blocks * selective / step};
}

} // namespace

double TaughtBytes::of_sample(GptConfig const& config) const {
  auto const s = static_cast<double>(config.context);
  return sbh * s * static_cast<double>(config.channels) + abss * static_cast<double>(config.heads) * s * s;
}

TaughtActivations compare_taught_activations() {
  TaughtActivations lecture{.tensors = tensor_rows(),
                            .totals = {},
                            .ways = way_rows(),
                            .state = static_cast<double>(recipe(RecipeName::mixed16).total()) * gpt3().nominal,
                            .models = {},
                            .recomputation = {}};
  lecture.totals = running_totals(lecture.tensors);
  for (GptPreset const& preset : gpt_presets) {
    lecture.models.push_back(model_row(preset));
    lecture.recomputation.push_back(recomputation_row(preset));
  }
  return lecture;
}

} // namespace trainstone
