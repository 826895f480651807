// trainstone verify --first-step: the loss that a deck's training begins with, from a reference in float64 that never
// holds the model.

#include "commands.hpp"

#include "core/clock.hpp"
#include "deck/benchmark_class.hpp"
#include "model/reference_loss.hpp"
#include "result/golden.hpp"
#include "train/data/training_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <thread>
#include <vector>

namespace trainstone {

namespace {

/// What the reference does not compute.
void require_plain(Deck const& deck) {
  RunConfig const& config = deck.config;
  if (config.precision.recipe != RecipeName::fp32)
    fail_at(deck, "precision.recipe",
            "verify --first-step knows initial values in fp32 only: precision.recipe must be "
            "\"fp32\"");
  if (config.model_options.dropout > 0)
    fail_at(deck, "model.dropout", "verify --first-step drops nothing: model.dropout must be 0");
  if (!config.model_setup.load.empty())
    fail_at(deck, "model.load", "verify --first-step begins with the deck's seed: model.load must be empty");
}

struct Sample {
  std::vector<std::int32_t> tokens, targets;
};

/// The first positions of the first sample of the first step: the same for any number of ranks.
Sample first_sample(RunConfig config, std::int64_t positions) {
  config.batch = {1, config.batch.global, config.batch.global};
  TrainingData const data(config, ScanTokens::yes);
  auto const length = static_cast<std::size_t>(config.data.sequence);
  Sample sample{std::vector<std::int32_t>(length), std::vector<std::int32_t>(length)};
  data.batches().training(0, 0, sample.tokens, sample.targets);
  sample.tokens.resize(static_cast<std::size_t>(positions));
  sample.targets.resize(static_cast<std::size_t>(positions));
  return sample;
}

/// What the file has of this deck, if it is not to be replaced.
std::optional<GoldenFirstStep> find_recorded(std::string const& path, std::string const& key, std::int64_t positions) {
  std::optional<GoldenFirstStep> recorded = find_golden_first_step(path, key);
  if (!recorded || recorded->positions == positions) return recorded;
  TRAINSTONE_REQUIRE_INPUT(!recorded->update,
                           "{}: the first step {} has an update, of {} positions, which a loss of {} positions would "
                           "replace: take the same --positions, or remove the entry",
                           path, key, recorded->positions, positions);
  return std::nullopt;
}

/// Two references in float64 that sum up in other orders. \return the exit code
int compare_with_recorded(GoldenFirstStep const& recorded, double loss, std::string const& path) {
  constexpr double bound = 1e-10;
  double const difference = std::abs(loss / recorded.loss - 1);
  bool const agrees = difference <= bound;
  fmt::print("{} with the loss in {}: difference {:.1e}, bound {:.1e}{}\n", agrees ? "agrees" : "DISAGREES", path,
             difference, bound, agrees ? "" : "; to record the new one, remove the entry");
  return agrees ? 0 : static_cast<int>(ExitCode::verification_failed);
}

} // namespace

int verify_first_step(FirstStepOptions const& options) {
  Deck const deck = read_deck(options.common.deck);
  std::int64_t const ranks = std::max<std::int64_t>(deck.config.comm.expected_ranks, 1);
  RunConfig const config = resolve(deck, ranks);
  require_plain(deck);
  std::int64_t const positions = options.positions.value_or(config.data.sequence);
  TRAINSTONE_REQUIRE_INPUT(positions <= config.data.sequence, "--positions {} exceeds data.sequence = {}", positions,
                           config.data.sequence);
  std::string const path = golden_path(deck.path), key = golden_key(deck, ranks);
  std::optional<GoldenFirstStep> const recorded = find_recorded(path, key, positions);
  int const threads = options.threads.value_or(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  Sample const sample = first_sample(config, positions);
  ReferenceLossWork const work = reference_loss_work(config.model, positions);
  fmt::print("{}, class {}: {:.1e} FLOP in float64 and {:.1e} initial values on {} threads, about {:.0f} s\n",
             deck_label(deck), judge_class(deck, ranks).name, work.flops, work.random_values, threads,
             predict_reference_loss_seconds(work, threads));
  std::fflush(stdout);
  SteadyTime const begin = std::chrono::steady_clock::now();
  double const loss = reference_loss(config.model, initial_values(static_cast<std::uint64_t>(config.data.seed)),
                                     sample.tokens, sample.targets, threads);
  fmt::print(
      "loss of the first {} positions before any update: {:.12f}, in {:.1f} s; a run may differ by {:.1e} of it\n",
      positions, loss, seconds_since(begin), reference_loss_bound(config.model));
  if (recorded) return compare_with_recorded(*recorded, loss, path);
  record_golden_first_step(path, key,
                           {loss, positions, fmt::format("trainstone {} verify --first-step", TRAINSTONE_VERSION)});
  fmt::print("golden first step {} recorded in {}\n", key, path);
  return 0;
}

} // namespace trainstone
