// What a deck cannot ask for where the workers of parameter servers do not wait for each other, or where servers update
// unit by unit. Part of deck_checks.hpp.

#include "deck/deck_checks.hpp"
#include "parallel/plan/strategies.hpp"

namespace trainstone {

namespace {

using Found = std::optional<ConfigProblem>;

/// Checkpoints are written in pauses, which also come where held-out losses are measured.
Found pauses_problem(RunConfig const& config) {
  if (!config.checkpoint.writes()) return std::nullopt;
  std::int64_t const validates = config.data.has_validation() ? config.data.validate_every : 0,
                     writes = config.checkpoint.every_steps;
  if (validates == 0 && writes == 0)
    return problem("checkpoint.dir",
                   "checkpoint.dir: server.mode async and bounded write checkpoints and stop in pauses, and there are "
                   "none; set checkpoint.every_steps or data.validate_every");
  if (validates > 0 && writes > 0 && validates % writes != 0 && writes % validates != 0)
    return problem("checkpoint.every_steps",
                   "checkpoint.every_steps = {}: server.mode async and bounded pause for checkpoints and for held-out "
                   "losses; one interval must divide the other; nearest legal values: {}, or a multiple of {}",
                   writes, nearest_divisors(validates, writes), validates);
  return std::nullopt;
}

} // namespace

std::optional<ConfigProblem> find_asynchronous_problem(RunConfig const& config) {
  ParallelConfig const& parallel = config.parallel;
  bool const is_read = row_of(parallel.strategy).sharers == StateSharers::servers;
  if (!is_read || parallel.server_mode == ServerMode::sync) return std::nullopt;
  char const* const modes = "server.mode async and bounded";
  auto const refuse = [&](char const* key, std::string const& why) {
    return problem(key, "{}: {} {}", key, modes, why);
  };
  if (!has_dedicated_servers(parallel))
    return refuse("server.colocated", "need ranks that do nothing but serve; legal value: false");
  if (parallel.check_replicas > 0)
    return refuse("parallel.check_replicas", "have equal replicas in pauses only; leave it at 0");
  if (config.precision.loss_scale == LossScaling::dynamic)
    return refuse("precision.loss_scale", "skip no push; legal value: none");
  if (Found found = pauses_problem(config)) return found;
  if (config.bench.kernels) return refuse("bench.kernels", "time no kernels; legal value: false");
  return std::nullopt;
}

/// Nothing may decide over an update that is known only when all gradients are there.
std::optional<ConfigProblem> find_priority_problem(RunConfig const& config) {
  ParallelConfig const& parallel = config.parallel;
  bool const is_read = row_of(parallel.strategy).sharers == StateSharers::servers;
  if (!is_read || parallel.server_schedule == ServerSchedule::fifo) return std::nullopt;
  auto const refuse = [&](char const* key, std::string const& why) {
    return problem(key, "{}: server.schedule \"priority\" {}", key, why);
  };
  if (!has_dedicated_servers(parallel))
    return refuse("server.colocated", "needs ranks that do nothing but serve; legal value: false");
  if (parallel.server_mode != ServerMode::sync) return refuse("server.mode", "needs all workers; legal value: sync");
  if (config.optimizer.clip > 0)
    return refuse("optimizer.clip", "updates before the norm of all gradients is known; legal value: 0");
  if (config.precision.loss_scale == LossScaling::dynamic)
    return refuse("precision.loss_scale", "skips no step; legal value: none");
  if (config.faults.extra_message || config.faults.order_step > 0)
    return refuse(config.faults.extra_message ? "faults.extra_message" : "faults.order.step",
                  "sends while ranks agree on losses; leave it out");
  if (granularity_of(parallel) == Granularity::step)
    return refuse("parallel.granularity", "sends while workers compute; legal values: tensor, bucket");
  if (!overlaps(parallel)) return refuse("parallel.overlap", "sends while workers compute; legal value: true");
  return std::nullopt;
}

} // namespace trainstone
