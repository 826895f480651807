#include "lectures/taught_capability.hpp"

#include "core/error.hpp"
#include "model/parameter_table.hpp"
#include "parallel/pipeline/pipeline_stages.hpp"
#include "parallel/plan/recipe.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trainstone {

namespace {

constexpr std::int64_t node_ranks = 16;             // of the published measurements
constexpr std::int64_t gpt3_batch = 3200000 / 2048; // samples of 3.2 M tokens
constexpr std::int64_t gpt3_heads = 96, gpt3_stages = most_stages(96);

double bytes_per_parameter() { return static_cast<double>(recipe(RecipeName::mixed16).total()); }

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The largest divisor of `number` that is at most `most`.
std::int64_t divisor_up_to(std::int64_t number, std::int64_t most) {
  std::int64_t divisor = std::min(number, most);
  while (number % divisor != 0) --divisor;
  return divisor;
}

/// Parameters of the widest model with GPT-3's layers, heads and tables whose largest rank fits on a card.
double widest_model(std::int64_t tensor, std::int64_t stages) {
  GptConfig config = *find_preset("gpt3-175b");
  std::int64_t fits = 1, does_not = std::int64_t{1} << 20;
  while (does_not - fits > 1) {
    config.channels = fits + (does_not - fits) / 2;
    auto const state = bytes_per_parameter() * static_cast<double>(largest_rank_parameters(config, tensor, stages));
    (state <= capability_card ? fits : does_not) = config.channels;
  }
  config.channels = fits;
  return static_cast<double>(largest_rank_parameters(config, 1, 1)); // all of it
}

/// \param[in] tensor, stages  ranks among which the model is divided
/// \param[in] replicas        of these ranks
CapabilityRow with_parts(std::string method, std::string parameters, std::string degree, std::string efficiency,
                         std::string usability, std::int64_t tensor, std::int64_t stages, std::int64_t replicas,
                         std::string limit) {
  return {std::move(method),
          std::move(parameters),
          std::move(degree),
          std::move(efficiency),
          std::move(usability),
          tensor * stages * replicas,
          widest_model(tensor, stages),
          std::move(limit)};
}

std::vector<CapabilityRow> method_rows() {
  std::string const many = "> 1000", good = "Good", very_good = "Very Good";
  std::string const rewrite = "Needs Model Rewrite";
  double const on_one_card = capability_card / bytes_per_parameter();
  return {
      {"DP", "1.2", many, very_good, "Great", gpt3_batch, on_one_card, "N <= batch; state is not divided"},
      with_parts("MP", "20", "16", good, rewrite, gpt3_heads, 1, 1, "t divides the heads"),
      with_parts("MP + DP", "20", many, good, rewrite, gpt3_heads, 1, gpt3_batch, "also N/t <= batch"),
      with_parts("PP", "100", "128", very_good, rewrite, 1, gpt3_stages, 1, "p <= L + 2"),
      with_parts("PP + DP", "100", many, very_good, rewrite, 1, gpt3_stages, gpt3_batch, "also N/p <= batch"),
      with_parts("MP + PP + DP", many, many, very_good, "Needs Significant Model Rewrite", gpt3_heads, gpt3_stages,
                 gpt3_batch, "all of these"),
      {"ZeRO", many, many, very_good, "Great", gpt3_batch, static_cast<double>(gpt3_batch) * on_one_card,
       "N <= batch; stage 3"},
  };
}

/// The least value from 1 to `most` that is legal and fits.
template <class Legal, class Bytes>
std::optional<std::int64_t> least(std::int64_t most, double card, Legal const& legal, Bytes const& parameters) {
  for (std::int64_t degree = 1; degree <= most; ++degree)
    if (legal(degree) && bytes_per_parameter() * static_cast<double>(parameters(degree)) <= card) return degree;
  return std::nullopt;
}

LeastDegrees least_degrees(GptConfig const& config, std::int64_t in_node, double card) {
  auto const divides_heads = [&](std::int64_t t) { return config.heads % t == 0; };
  auto const any = [](std::int64_t) { return true; };
  double const all = bytes_per_parameter() * static_cast<double>(ParameterTable(config, 1).model_parameters());
  return {
      least(config.heads, card, divides_heads, [&](auto t) { return largest_rank_parameters(config, t, 1); }),
      least(most_stages(config.layers), card, any, [&](auto p) { return largest_rank_parameters(config, 1, p); }),
      least(most_stages(config.layers), card, any, [&](auto p) { return largest_rank_parameters(config, in_node, p); }),
      static_cast<std::int64_t>(std::ceil(all / card))};
}

} // namespace

std::int64_t largest_rank_parameters(GptConfig const& config, std::int64_t tensor, std::int64_t stages) {
  TRAINSTONE_REQUIRE(tensor >= 1 && config.heads % tensor == 0, "{} tensor ranks do not divide {} heads", tensor,
                     config.heads);
  TRAINSTONE_REQUIRE(stages >= 1 && stages <= most_stages(config.layers), "{} stages of {} layers", stages,
                     config.layers);
  std::int64_t const h = config.channels;
  // biases of query, key, value and of the first linear layer are split; those of the sums, and the norms, are whole
  std::int64_t const block = (12 * h * h + 7 * h) / tensor + 6 * h;
  std::int64_t const tokens = divide_up(config.vocab, tensor) * h, positions = config.context * h, norm = 2 * h;
  std::vector<std::int64_t> of_stage = even_stages(config.layers, stages);
  for (std::int64_t& parameters : of_stage) parameters *= block;
  of_stage.front() += tokens + positions;
  of_stage.back() += stages > 1 ? tokens + norm : norm;
  return std::ranges::max(of_stage);
}

TaughtCapability compare_taught_capability() {
  TaughtCapability lecture{method_rows(), {}};
  for (GptPreset const& preset : gpt_presets) {
    DegreeRow row{std::string(preset.name), preset.config, divisor_up_to(preset.config.heads, node_ranks), {}};
    for (std::size_t i = 0; i < capability_cards.size(); ++i)
      row.on_cards[i] = least_degrees(preset.config, row.node_tensor_ranks, capability_cards[i]);
    lecture.models.push_back(std::move(row));
  }
  return lecture;
}

} // namespace trainstone
