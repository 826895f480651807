// What a deck cannot ask for where the workers of parameter servers do not wait for each other. Part of
// deck_checks.hpp.

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
  if (config.checkpoint.writes()) return refuse("checkpoint.dir", "write no checkpoints");
  if (!config.model_setup.save.empty()) return refuse("model.save", "save no model");
  if (config.bench.kernels) return refuse("bench.kernels", "time no kernels");
  return std::nullopt;
}

} // namespace trainstone
