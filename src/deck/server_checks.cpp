// What a deck cannot ask for where the workers of parameter servers do not wait for each other, or where servers update
// unit by unit. Part of deck_checks.hpp.

#include "deck/deck_checks.hpp"
#include "parallel/plan/strategies.hpp"

namespace trainstone {

std::optional<ConfigProblem> find_asynchronous_problem(RunConfig const& config) {
  ParallelConfig const& parallel = config.parallel;
  bool const is_read = row_of(parallel.strategy).sharers == StateSharers::servers;
  if (!is_read || parallel.server_mode == ServerMode::sync) return std::nullopt;
  char const* const modes = "server.mode async and bounded";
  auto const refuse = [&](char const* key, std::string const& why) {
    return problem(key, "{}: {} {}", key, modes, why);
  };
  if (!has_dedicated_servers(parallel)) return refuse("server.colocated", "need ranks that do nothing but serve");
  if (parallel.check_replicas > 0)
    return refuse("parallel.check_replicas", "have equal replicas in pauses only; leave it at 0");
  if (config.precision.loss_scale == LossScaling::dynamic)
    return refuse("precision.loss_scale", "skip no push; legal value: none");
  if (!config.model_setup.save.empty()) return refuse("model.save", "save no model");
  if (config.bench.kernels) return refuse("bench.kernels", "time no kernels");
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
  if (!has_dedicated_servers(parallel)) return refuse("server.colocated", "needs ranks that do nothing but serve");
  if (parallel.server_mode != ServerMode::sync) return refuse("server.mode", "needs all workers; legal value: sync");
  if (config.optimizer.clip > 0)
    return refuse("optimizer.clip", "updates before the norm of all gradients is known; legal value: 0");
  if (config.precision.loss_scale == LossScaling::dynamic)
    return refuse("precision.loss_scale", "skips no step; legal value: none");
  if (!overlaps(parallel)) return refuse("parallel.overlap", "sends while workers compute; legal value: true");
  return std::nullopt;
}

} // namespace trainstone
