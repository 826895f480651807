#include "lectures/taught_models.hpp"

#include "model/activation_plan.hpp"
#include "model/parameter_table.hpp"
#include "parallel/plan/recipe.hpp"

#include <algorithm>

namespace trainstone {

namespace {

constexpr std::array<TaughtModel, 4> taught_models{
    {{"bert-large", 1, 5.12}, {"gpt2-xl", 4.7, 24}, {"turing-nlg", 54, 275}, {"gpt3-175b", 547, 2800}}};

GptPreset const& preset_of(std::string_view name) { return *std::ranges::find(gpt_presets, name, &GptPreset::name); }

std::int64_t count(GptPreset const& preset) { return ParameterTable(preset.config, 1).model_parameters(); }

std::optional<TaughtModel> taught_model(std::string_view name) {
  auto const* const found = std::ranges::find(taught_models, name, &TaughtModel::name);
  return found == taught_models.end() ? std::nullopt : std::optional(*found);
}

ModelRow model_row(GptPreset const& preset) {
  GptPreset const& smallest = preset_of(taught_models.front().name);
  std::int64_t const parameters = count(preset);
  return {.name = std::string(preset.name),
          .layers = preset.config.layers,
          .channels = preset.config.channels,
          .nominal = preset.nominal,
          .computed = parameters,
          .taught = taught_model(preset.name),
          .exact_computation = flops_per_token(preset.config) / flops_per_token(smallest.config),
          .exact_bytes_16 = recipe(RecipeName::mixed16).total() * parameters,
          .exact_bytes_20 = recipe(RecipeName::mixed20).total() * parameters};
}

std::vector<StateRow> state_rows() {
  GptPreset const& gpt3 = preset_of("gpt3-175b");
  std::vector<StateRow> rows{{"master copy, fp32", 4, 0, 0},
                             {"first moment, fp32", 4, 0, 0},
                             {"second moment, fp32", 4, 0, 0},
                             {"parameters, 16 bits", 2, 0, 0},
                             {"gradients, 16 bits", 2, 0, 0}};
  for (StateRow& row : rows) {
    row.taught = row.bytes_per_parameter * gpt3.nominal;
    row.exact = row.bytes_per_parameter * count(gpt3);
  }
  return rows;
}

/// Bytes that the plan has for one sequence, inside the blocks or outside of them.
double planned_bytes(GptConfig const& config, GptOptions const& options, bool in_blocks) {
  std::uint64_t bytes = 0;
  for (PlannedTensor const& tensor : activation_plan(config, {1, config.context}, Storage::bf16, options))
    if (tensor.name.starts_with("block ") == in_blocks) bytes += tensor.bytes;
  return static_cast<double>(bytes);
}

std::vector<ActivationRow> activation_rows() {
  GptConfig const& gpt3 = preset_of("gpt3-175b").config;
  auto const s = static_cast<double>(gpt3.context), layers = static_cast<double>(gpt3.layers);
  double const sh = s * static_cast<double>(gpt3.channels), ass = static_cast<double>(gpt3.heads) * s * s;
  GptOptions const stored{.dropout = 0.1, .dropout_masks = DropoutMasks::stored}, recomputed{.dropout = 0.1};
  GptOptions const flash{.attention = AttentionKind::flash, .dropout = 0.1};
  std::vector<ActivationRow> rows{
      {"34 sbh + 5 abss, as taught", layers * (34 * sh + 5 * ass), 0},
      {"34 sbh, selective recomputation", layers * 34 * sh, 0},
      {"2 sbh, full recomputation", layers * 2 * sh, 0},
      {"this program, masks stored", planned_bytes(gpt3, stored, true), 0},
      {"this program, masks recomputed", planned_bytes(gpt3, recomputed, true), 0},
      {"this program, flash attention", planned_bytes(gpt3, flash, true), 0},
      {"buffers outside of the blocks", planned_bytes(gpt3, recomputed, false), 0},
  };
  for (ActivationRow& row : rows) row.batch = row.sample * taught_batch_tokens / s;
  return rows;
}

} // namespace

std::vector<int> cards_that_hold(double bytes, double unit) {
  std::vector<int> cards;
  std::ranges::copy_if(card_sizes, std::back_inserter(cards), [&](int size) { return bytes <= size * unit; });
  return cards;
}

double flops_per_token(GptConfig const& config) {
  auto const layers = static_cast<double>(config.layers), width = static_cast<double>(config.channels),
             context = static_cast<double>(config.context), vocab = static_cast<double>(config.vocab);
  return 3 * (2 * (12 * layers * width * width + vocab * width) + 4 * layers * context * width);
}

TaughtModels compare_taught_models() {
  TaughtModels lecture{{}, state_rows(), activation_rows()};
  for (GptPreset const& preset : gpt_presets) lecture.models.push_back(model_row(preset));
  std::ranges::stable_sort(lecture.models, {}, &ModelRow::computed);
  return lecture;
}

} // namespace trainstone
