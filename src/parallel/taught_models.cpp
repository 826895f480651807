#include "parallel/taught_models.hpp"

#include "model/parameter_table.hpp"
#include "parallel/recipe.hpp"

#include <algorithm>

namespace trainstone {

namespace {

constexpr std::string_view smallest_taught = "bert-large";
constexpr std::array<std::string_view, 4> taught_names{smallest_taught, "gpt2-xl", "turing-nlg", "gpt3-175b"};

GptPreset const& preset_of(std::string_view name) { return *std::ranges::find(gpt_presets, name, &GptPreset::name); }

std::int64_t count(GptPreset const& preset) { return ParameterTable(preset.config, 1).model_parameters(); }

ModelRow model_row(GptPreset const& preset) {
  GptPreset const& smallest = preset_of(smallest_taught);
  std::int64_t const parameters = count(preset);
  return {.name = std::string(preset.name),
          .nominal = preset.nominal,
          .computed = parameters,
          .taught_computation = preset.nominal / smallest.nominal,
          .exact_computation = flops_per_token(preset.config) / flops_per_token(smallest.config),
          .in_lecture = std::ranges::find(taught_names, preset.name) != taught_names.end(),
          .taught_bytes = static_cast<double>(recipe("mixed16").total()) * preset.nominal,
          .exact_bytes_16 = recipe("mixed16").total() * parameters,
          .exact_bytes_20 = recipe("mixed20").total() * parameters};
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
  TaughtModels lecture{{}, state_rows()};
  for (GptPreset const& preset : gpt_presets) lecture.models.push_back(model_row(preset));
  std::ranges::stable_sort(lecture.models, {}, &ModelRow::computed);
  return lecture;
}

} // namespace trainstone
