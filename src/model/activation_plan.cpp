#include "model/activation_plan.hpp"

#include "model/part_lists.hpp"

#include <algorithm>
#include <array>

namespace trainstone {

namespace {

constexpr std::array<char const*, activation_kinds> names{
    "embedded",    "embedded mask",  "ln1",       "ln1 mean",     "ln1 rstd",    "qkv",      "probabilities",
    "log-sum-exp", "attention mask", "attention", "middle",       "ln2",         "ln2 mean", "ln2 rstd",
    "fc",          "gelu",           "output",    "attproj mask", "fcproj mask", "lnf",      "lnf mean",
    "lnf rstd",    "logits",         "losses",    "branch",       "d_stream",    "d_qkv",    "d_fc"};

PlannedTensor planned_activation(std::string const& name, Activation what, Storage storage, Index elements) {
  if (is_mask(what)) return planned<std::uint8_t>(name, elements);
  return planned(is_statistic(what) ? Storage::fp32 : storage, name, elements);
}

} // namespace

std::string to_string(PlacedActivation const& placed) {
  std::string prefix;
  if (placed.block == PlacedActivation::recomputed) prefix = "recomputed ";
  if (placed.block >= 0) prefix = "block " + std::to_string(placed.block) + " ";
  return prefix + names[static_cast<std::size_t>(placed.what)];
}

Extents extents_of(Activation what, GptConfig const& config, MicroBatchShape shape, GptOptions const& options) {
  Index const n = shape.rows(), c = config.channels;
  if (what == Activation::log_sum_exp) return {n * config.heads, 1};
  if (is_statistic(what)) return {n, 1};
  switch (what) {
  case Activation::probabilities:
  case Activation::attention_mask: return {n * config.heads, shape.sequence};
  case Activation::qkv:
  case Activation::d_qkv: return {n, 3 * c};
  case Activation::fc:
  case Activation::gelu:
  case Activation::d_fc: return {n, 4 * c};
  case Activation::logits: return {n / options.loss_chunks, config.padded_vocab()};
  default: return {n, c};
  }
}

ActivationPlaces::ActivationPlaces(Index layers, GptOptions const& options) : m_written(activations_written(options)) {
  for (Index block = 0; block < layers; ++block) {
    Recompute const how = options.recompute_of(block);
    std::shared_ptr<Flags const>& way = m_ways[how];
    if (!way) {
      Flags flags{};
      for (Activation const what : recomputed(how, options)) flags[static_cast<std::size_t>(what)] = true;
      way = std::make_shared<Flags const>(flags);
    }
    m_recomputed.push_back(way);
  }
}

PlacedActivation ActivationPlaces::operator()(Activation what, Index block) const {
  if (what == Activation::stream && block == 0) return {Activation::embedded, PlacedActivation::of_model};
  if (what == Activation::stream) return {Activation::output, block - 1};
  if (what == Activation::d_branch) return {Activation::d_qkv, PlacedActivation::of_model};
  if (!is_of_block(what)) return {what, PlacedActivation::of_model};
  return {what, is_recomputed(what, block) ? PlacedActivation::recomputed : block};
}

std::vector<PlacedActivation> ActivationPlaces::all() const {
  std::vector<PlacedActivation> placed;
  auto const add = [&](Activation first, Activation last, Index block) {
    for (auto what = m_written.lower_bound(first); what != m_written.end() && *what <= last; ++what)
      if (block < 0 || !is_recomputed(*what, block)) placed.push_back({*what, block});
  };
  add(Activation::embedded, Activation::embedded_mask, PlacedActivation::of_model);
  for (Index block = 0; block < std::ssize(m_recomputed); ++block) add(Activation::ln1, Activation::fcproj_mask, block);
  for (Activation const what : m_written) {
    auto const has = [&](auto const& way) { return (*way.second)[static_cast<std::size_t>(what)]; };
    if (is_of_block(what) && std::ranges::any_of(m_ways, has)) placed.push_back({what, PlacedActivation::recomputed});
  }
  add(Activation::lnf, Activation::d_fc, PlacedActivation::of_model);
  return placed;
}

std::vector<PlannedTensor> activation_plan(GptConfig const& config, MicroBatchShape shape, Storage storage,
                                           GptOptions const& options) {
  std::vector<PlannedTensor> plan;
  for (PlacedActivation const& placed : ActivationPlaces(config.layers, options).all())
    plan.push_back(planned_activation(to_string(placed), placed.what, storage,
                                      extents_of(placed.what, config, shape, options).elements()));
  return plan;
}

} // namespace trainstone
