#include "model/activation_plan.hpp"

#include "model/part_lists.hpp"

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
  std::string const prefix = placed.block < 0 ? "" : "block " + std::to_string(placed.block) + " ";
  return prefix + names[static_cast<std::size_t>(placed.what)];
}

Extents extents_of(Activation what, GptConfig const& config, MicroBatchShape shape) {
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
  case Activation::logits: return {n, config.padded_vocab()};
  default: return {n, c};
  }
}

std::vector<PlacedActivation> activations_of(GptConfig const& config, GptOptions const& options) {
  std::set<Activation> const all = activations_written(options);
  std::vector<PlacedActivation> placed;
  auto const add = [&](Activation first, Activation last, Index block) {
    for (auto what = all.lower_bound(first); what != all.end() && *what <= last; ++what)
      placed.push_back({*what, block});
  };
  add(Activation::embedded, Activation::embedded_mask, -1);
  for (Index block = 0; block < config.layers; ++block) add(Activation::ln1, Activation::fcproj_mask, block);
  add(Activation::lnf, Activation::d_fc, -1);
  return placed;
}

std::vector<PlannedTensor> activation_plan(GptConfig const& config, MicroBatchShape shape, Storage storage,
                                           GptOptions const& options) {
  std::vector<PlannedTensor> plan;
  for (PlacedActivation const& placed : activations_of(config, options))
    plan.push_back(
        planned_activation(to_string(placed), placed.what, storage, extents_of(placed.what, config, shape).elements()));
  return plan;
}

} // namespace trainstone
