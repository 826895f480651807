#include "advice/rule.hpp"

#include "advice/largest_fit.hpp"
#include "core/error.hpp"
#include "core/plural.hpp"
#include "parallel/plan/recipe.hpp"
#include "report/output.hpp"
#include "train/plan/run_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

std::string gigabytes(double bytes) { return fmt::format("{:.4g} GB", bytes / 1e9); }

/// Plans ways of one model, on one data rank.
class OneModel {
public:
  OneModel(DeckOnRanks const& asked, WayBatch const& batch, std::uint64_t memory)
      : m_asked(asked), m_deck(asked.deck()), m_memory(memory) {
    std::int64_t const data = std::max<std::int64_t>(1, mesh_of(m_deck.config.parallel, asked.ranks).data());
    std::int64_t const given = m_deck.config.batch.accumulation;
    m_batch.micro = batch.micro;
    m_batch.global = batch.micro * (given > 0 ? given : std::max<std::int64_t>(1, batch.global / (batch.micro * data)));
  }

  DeckOnRanks on(Way const& way) const { return on_way(m_asked, m_deck, way, m_batch); }
  std::vector<std::string> keys(Way const& way) const { return keys_of(way, m_batch, m_deck); }

  /// Bytes, if it fits. The first stage is planned first: it often needs most.
  std::optional<std::uint64_t> fitting(Way const& way) const {
    try {
      DeckOnRanks const asked = on(way);
      if (plan_memory(planned_run(asked), 0).kernel_memory() > m_memory) return std::nullopt;
      std::uint64_t const needed = needed_memory(asked);
      return needed <= m_memory ? std::optional(needed) : std::nullopt;
    } catch (InputError const&) {
      return std::nullopt;
    }
  }

  Deck const& deck() const { return m_deck; }

private:
  DeckOnRanks m_asked;
  Deck m_deck;
  WayBatch m_batch;
  std::uint64_t m_memory;
};

Way stages_of(std::int64_t tensor, std::int64_t pipeline) { return {.tensor = tensor, .pipeline = pipeline}; }

/// The least number of stages, at most `most`, with which a model on so many tensor ranks fits.
std::optional<Way> least_pipeline(OneModel const& model, std::int64_t tensor, std::int64_t most) {
  for (std::int64_t pipeline = 2; pipeline <= most; ++pipeline)
    if (model.fitting(stages_of(tensor, pipeline))) return stages_of(tensor, pipeline);
  return std::nullopt;
}

std::optional<Way> least_tensor(OneModel const& model, std::int64_t heads) {
  for (std::int64_t tensor = 2; tensor <= heads; ++tensor)
    if (heads % tensor == 0 && model.fitting(stages_of(tensor, 1))) return stages_of(tensor, 1);
  return std::nullopt;
}

std::int64_t ranks_per_node(DeckOnRanks const& asked) {
  return asked.nodes > 1 ? std::max<std::int64_t>(1, asked.ranks / asked.nodes) : taught_node_ranks;
}

std::int64_t divisor_up_to(std::int64_t number, std::int64_t most) {
  std::int64_t divisor = std::min(number, most);
  while (number % divisor != 0) --divisor;
  return divisor;
}

void find_way(RuleAdvice& advice, OneModel const& model, std::int64_t node_ranks) {
  GptConfig const& config = model.deck().config.model;
  std::optional<Way> alone;
  if (advice.answer == RuleAnswer::data) alone = Way{};
  if (advice.answer == RuleAnswer::pipeline) alone = least_pipeline(model, 1, config.layers);
  if (advice.answer == RuleAnswer::tensor) alone = least_tensor(model, config.heads);
  advice.alone = alone.has_value();
  advice.way = alone;
  if (advice.alone) return;
  for (std::int64_t stages = config.layers + 1; stages <= config.layers + 2; ++stages)
    if (advice.answer == RuleAnswer::pipeline && !advice.with_ends && model.fitting(stages_of(1, stages)))
      advice.with_ends = stages;
  advice.way = least_pipeline(model, divisor_up_to(config.heads, node_ranks), config.layers);
  if (!advice.way) advice.way = least_pipeline(model, config.heads, config.layers);
}

} // namespace

std::vector<ModelProduct> operations_of(RunConfig const& config) {
  GptConfig const& model = config.model;
  std::int64_t const rows = config.data.sequence > 0 ? config.data.sequence : model.context, h = model.channels;
  Recipe const bytes = recipe(config.precision.recipe, config.optimizer);
  auto const product = [&](char const* name, std::int64_t in, std::int64_t out) {
    return ModelProduct{name, in * out, in * out * bytes.total(), rows * (in + out) * bytes.parameter};
  };
  return {product("token table", h, model.vocab), product("query, key and value", h, 3 * h),
          product("projection of attention", h, h), product("first linear layer", h, 4 * h),
          product("second linear layer", 4 * h, h)};
}

ModelProduct largest_operation(RunConfig const& config) {
  return std::ranges::max(operations_of(config), {}, &ModelProduct::bytes);
}

RuleAdvice apply_rule(DeckOnRanks const& asked, WayBatch const& batch, std::uint64_t memory) {
  OneModel const model(asked, batch, memory);
  RuleAdvice advice;
  advice.operation = largest_operation(model.deck().config);
  advice.model_bytes = needed_memory(model.on({}));
  bool const holds_operation = static_cast<std::uint64_t>(advice.operation.bytes()) <= memory;
  advice.answer = !holds_operation               ? RuleAnswer::tensor
                  : advice.model_bytes <= memory ? RuleAnswer::data
                                                 : RuleAnswer::pipeline;
  find_way(advice, model, ranks_per_node(asked));
  if (!advice.way) return advice;
  advice.keys = model.keys(*advice.way);
  advice.needed = needed_memory(model.on(*advice.way));
  return advice;
}

std::string rule_text(RuleAdvice const& advice, std::uint64_t memory) {
  ModelProduct const& one = advice.operation;
  auto const given = static_cast<double>(memory);
  bool const holds_operation = static_cast<double>(one.bytes()) <= given;
  std::string text = fmt::format(
      "the taught rule, for {} per rank\n"
      "  1. Can one rank hold the largest single operation? {}: {}, {:.4g} M parameters: {} of state, {} of input and "
      "output\n",
      gigabytes(given), holds_operation ? "yes" : "no", one.name, static_cast<double>(one.parameters) / 1e6,
      gigabytes(static_cast<double>(one.state)), gigabytes(static_cast<double>(one.in_out)));
  text += fmt::format("  2. Can one rank hold the whole model? {}: {} of state, activations and buffers\n",
                      advice.model_bytes <= memory ? "yes" : "no", gigabytes(static_cast<double>(advice.model_bytes)));
  char const* const answer = advice.answer == RuleAnswer::tensor     ? "tensor parallelism"
                             : advice.answer == RuleAnswer::pipeline ? "model parallelism: a pipeline"
                                                                     : "data parallelism";
  text += fmt::format("  3. So: {}\n", answer);
  if (!advice.alone)
    text += "     but the rule alone is not enough: no legal degree of it fits, with a block or more "
            "on every stage\n";
  if (advice.with_ends)
    text += fmt::format("     (with {} stages it fits: embedding and head are stages of their own then)\n",
                        *advice.with_ends);
  if (!advice.way) return text + "     and no combination of tensor ranks and stages fits\n";
  return text + fmt::format("     least degree that fits: {}, on {} per model, {} needed\n     on these alone: {}\n",
                            to_string(*advice.way), plural(advice.way->ranks(), "rank"),
                            gigabytes(static_cast<double>(advice.needed)), set_options(advice.keys));
}

} // namespace trainstone
