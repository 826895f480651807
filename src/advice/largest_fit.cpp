#include "advice/largest_fit.hpp"

#include "core/error.hpp"
#include "report/output.hpp"
#include "train/plan/extreme_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace trainstone {

namespace {

/// A size of the model or of its work: legal are `least`, `least` + `step`, ...
struct ScaledKey {
  LargestFit question;
  std::int64_t least = 1;
  std::int64_t most = 1;
  std::function<std::vector<std::string>(std::int64_t)> keys;
};

/// Micro-batches whose rows divide into the chunks of the loss and of tensor ranks' sums.
std::int64_t micro_step(ResolvedRun const& run) {
  ParallelConfig const& parallel = run.config.parallel;
  std::int64_t const sequence = run.shape().sequence, losses = run.config.model_options.loss_chunks,
                     rows = parallel.tensor_row_chunks;
  std::int64_t const of_losses = losses / std::gcd(losses, sequence),
                     of_rows = parallel.sequence ? rows : rows / std::gcd(rows, sequence);
  return std::lcm(of_losses, of_rows);
}

ScaledKey micro_batch(ResolvedRun const& run) {
  BatchConfig const batch = run.config.batch;
  std::int64_t const step = micro_step(run), samples = batch.accumulation * run.mesh.data();
  return {.question = {.key = "batch.micro",
                       .kept = fmt::format("batch.accumulation stays {}, batch.global follows", batch.accumulation),
                       .step = step,
                       .fits = {},
                       .beyond = {}},
          .least = step,
          .most = std::int64_t{1} << 40,
          .keys = [samples](std::int64_t micro) {
            return std::vector{fmt::format("batch.micro={}", micro), fmt::format("batch.global={}", micro * samples)};
          }};
}

ScaledKey layers(ResolvedRun const& run) {
  ParallelConfig const& parallel = run.config.parallel;
  bool const in_chunks = parallel.pipeline > 1 && parallel.pipeline_chunks > 1;
  std::int64_t const step = in_chunks ? parallel.pipeline * parallel.pipeline_chunks : 1;
  return {.question = {.key = "model.layers", .kept = "all else stays", .step = step, .fits = {}, .beyond = {}},
          .least = std::max<std::int64_t>(step, parallel.pipeline - 2),
          .most = largest_gpt.layers,
          .keys = [](std::int64_t count) { return std::vector{fmt::format("model.layers={}", count)}; }};
}

/// Slices have equally many heads.
ScaledKey width(ResolvedRun const& run) {
  std::int64_t const head = run.config.model.head_size(), slices = run.config.parallel.slices();
  return {.question = {.key = "model.channels",
                       .kept = fmt::format("the size of a head stays {}, model.heads follows", head),
                       .step = head * slices,
                       .fits = {},
                       .beyond = {}},
          .least = head * slices,
          .most = largest_gpt.channels,
          .keys = [head](std::int64_t channels) {
            return std::vector{fmt::format("model.channels={}", channels),
                               fmt::format("model.heads={}", channels / head)};
          }};
}

std::optional<std::uint64_t> countable_memory(DeckOnRanks const& asked) {
  try {
    return needed_memory(asked);
  } catch (InputError const&) { // too large to be counted in 64 bits
    return std::nullopt;
  }
}

LargestFit search(DeckOnRanks const& asked, ScaledKey const& scaled, std::uint64_t memory) {
  LargestFit found = scaled.question;
  auto const value = [&](std::int64_t number) { return scaled.least + (number - 1) * found.step; };
  auto const at = [&](std::int64_t number) { return asked.with(scaled.keys(value(number))); };
  try {
    needed_memory(at(1));
  } catch (InputError const& error) { // a list with one value per block, for example
    found.refused = error.what();
    return found;
  }
  auto const sized = [&](std::int64_t number) -> std::optional<SizedKey> {
    std::optional<std::uint64_t> const needed = countable_memory(at(number));
    if (!needed) return std::nullopt;
    return SizedKey{value(number), scaled.keys(value(number)), *needed};
  };
  std::int64_t const most = (scaled.most - scaled.least) / found.step + 1;
  std::optional<std::int64_t> const largest = largest_that(most, [&](std::int64_t number) {
    std::optional<std::uint64_t> const needed = countable_memory(at(number));
    return needed && *needed <= memory;
  });
  if (largest) found.fits = sized(*largest);
  if (std::int64_t const next = largest.value_or(0) + 1; next <= most) found.beyond = sized(next);
  return found;
}

} // namespace

std::optional<std::int64_t> largest_that(std::int64_t most, std::function<bool(std::int64_t)> const& holds) {
  if (most < 1 || !holds(1)) return std::nullopt;
  std::int64_t below = 1, beyond = 2;
  while (beyond <= most && holds(beyond)) {
    below = beyond;
    beyond = beyond > most / 2 ? most + 1 : 2 * beyond;
  }
  beyond = std::min(beyond, most + 1);
  if (below < most && beyond == most + 1 && holds(most)) return most;
  while (beyond - below > 1) {
    std::int64_t const middle = below + (beyond - below) / 2;
    (holds(middle) ? below : beyond) = middle;
  }
  return below;
}

std::uint64_t needed_memory(DeckOnRanks const& asked) { return plan_largest(planned_run(asked)).kernel_memory(); }

std::vector<LargestFit> largest_fits(DeckOnRanks const& asked, std::uint64_t memory) {
  ResolvedRun const run = planned_run(asked);
  std::vector<LargestFit> fits;
  for (ScaledKey const& scaled : {micro_batch(run), layers(run), width(run)})
    fits.push_back(search(asked, scaled, memory));
  return fits;
}

std::string largest_fits_text(std::vector<LargestFit> const& fits) {
  std::string text = "largest that fits, all else as in the deck\n";
  for (LargestFit const& one : fits) {
    text += fmt::format("  {:<14} ", one.key);
    if (!one.refused.empty())
      text += fmt::format("not searched: {}\n", one.refused);
    else if (!one.fits)
      text += fmt::format("none: {} needs {}\n", one.beyond ? one.beyond->value : one.step,
                          one.beyond ? mebibytes(one.beyond->needed) : "too much to be counted");
    else
      text += fmt::format("{:>8} needs {}, {}; {}: {}\n", one.fits->value, mebibytes(one.fits->needed),
                          one.beyond ? fmt::format("{} {}", one.beyond->value, mebibytes(one.beyond->needed))
                                     : "no larger one is legal",
                          one.kept, set_options(one.fits->keys));
  }
  return text;
}

} // namespace trainstone
