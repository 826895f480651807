#include "train/repeated_training.hpp"

#include "core/host_copy.hpp"

#include <utility>

namespace trainstone {

namespace {

/// One worker without servers: what a worker computes and what servers update, on the same rank.
ResolvedRun on_one_rank(RunConfig config, Rank workers) {
  config.batch.global /= workers;
  config.parallel.strategy = Strategy::ddp;
  config.parallel.server_mode = ServerMode::sync;
  return resolve_run(config, Topology::one_node(1));
}

Vector<std::byte> view_of_bytes(StoredVector const& vector) {
  std::span<std::byte> const bytes = bytes_of(vector);
  return Vector<std::byte>(bytes.data(), bytes.size());
}

} // namespace

RepeatedTraining::RepeatedTraining(ExecutionSpace const& exec, Communicator& alone, RunConfig const& config,
                                   Rank workers, TrainingBatches batches, std::int64_t steps)
    : m_exec(exec),
      m_training(exec, alone, on_one_rank(config, workers), std::move(batches), steps, FellowWorkers{workers, 0, 0}),
      m_of_worker(static_cast<std::size_t>(workers)),
      m_clocks(static_cast<std::size_t>(workers), 0) {}

RepeatedTraining::Parameters RepeatedTraining::read() {
  Parameters parameters;
  ShardedEngine& engine = m_training.trainer.engine();
  for (Index group = 0; group < std::ssize(engine.table().groups()); ++group)
    parameters.push_back(copy_to_host(m_exec, view_of_bytes(engine.whole_parameters(group)),
                                      "trainstone::train::RepeatedTraining: parameters of a worker"));
  return parameters;
}

void RepeatedTraining::write(Parameters const& parameters) {
  ShardedEngine& engine = m_training.trainer.engine();
  for (std::size_t group = 0; group < parameters.size(); ++group)
    copy_from_host<std::byte>(m_exec, parameters[group],
                              view_of_bytes(engine.whole_parameters(static_cast<Index>(group))),
                              "trainstone::train::RepeatedTraining: parameters of a worker");
}

void RepeatedTraining::repeat(ServerAct const& act) {
  auto const worker = static_cast<std::size_t>(act.worker);
  if (act.answers) {
    m_of_worker.at(worker) = read();
    return;
  }
  Parameters const now = read();
  m_last = m_training.trainer.repeat_push(
      act.worker, m_clocks.at(worker)++, ++m_applied, [&] { write(m_of_worker.at(worker)); }, [&] { write(now); });
}

} // namespace trainstone
