#pragma once

// Training with parameter servers, where workers do not wait for each other, or not for all of them. It is as many
// trainings as there are workers: each worker trains with the servers alone, by the plan of one worker, and the servers
// have one state for all of them. Owns the order in which servers apply pushes and answer. The first server decides it,
// by the plan or by what has come, and tells the other servers. So every number of servers has one order, which is
// noted and can be repeated. Promises: no push is computed that is not applied; after a pause all workers have the
// servers' bits. Does not write files, and does not judge.

#include "comm/execution/communicator.hpp"
#include "parallel/servers/planned_order.hpp"
#include "parallel/servers/push_record.hpp"
#include "train/plan/served_run.hpp"
#include "train/trainer.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace trainstone {

/// Which worker may begin when, in a training of `steps` steps: as many pushes as workers are a step.
/// \param[in] pause_every  steps; 0: never
ServerPolicy server_policy(ResolvedRun const& run, std::int64_t steps, std::int64_t pause_every);

/// The order of a training whose order is planned. A push takes the time that faults give to the worker's step.
/// \param[in] start  in a pause, or of a training that begins
PlannedOrder planned_order(ResolvedRun const& run, ServerPolicy const& policy, ServerClocks const& start);

/// What all ranks know in a pause.
struct Pause {
  ServerRecord record; ///< since the last pause
  Requests requests;   ///< of all ranks
};

class AsynchronousTraining {
public:
  /// Collective over `world`. Everything referred to must outlive the object.
  /// \param[in] all         the run of all ranks
  /// \param[in] one_worker  with_one_worker(), of this rank's worker   \param[in] plan  this rank's of it
  /// \param[in] policy      server_policy(), or another one, as tests want it   \param[in] start  in a pause, or of a
  ///                        training that begins; the state of a pause is read from a checkpoint
  AsynchronousTraining(ExecutionSpace const& exec, Communicator& world, MemoryLedger& ledger, ResolvedRun const& all,
                       ResolvedRun const& one_worker, RunPlan const& plan, TrainingBatches batches, std::int64_t steps,
                       ServerPolicy const& policy, ServerClocks const& start);
  AsynchronousTraining(AsynchronousTraining const&) = delete;
  AsynchronousTraining& operator=(AsynchronousTraining const&) = delete;
  ~AsynchronousTraining();

  /// Trains until the next pause, or the end. Collective.
  /// \param[in] ask  in the pause: the requests of this rank; null: none
  /// \throws Error on the ranks that have met it: others may never come
  Pause train(std::function<Requests()> const& ask = nullptr);
  /// Whether there is nothing left to train.
  bool is_over() const { return m_applied == m_policy.pushes; }
  /// Mean held-out loss, the same on all ranks. In a pause; collective.
  double validate();
  /// In a pause: the first worker and the servers, who have the whole state. Their engines meet. Null on other ranks.
  Communicator const* meet_whole_state();
  /// Of every worker's parameters, with the servers' master copies; the same on all ranks. In a pause; collective.
  std::vector<std::uint64_t> parameter_hashes();
  /// Of this rank: a worker's, or a server's.
  Trainer& trainer() { return *m_trainer; }

private:
  class Worker;
  class Server;

  ExecutionSpace m_exec;
  Communicator* m_world;
  ServerPolicy m_policy;
  TrainingBatches m_batches;
  std::vector<Communicator> m_groups; ///< a worker with all servers: this worker's; of a server: of each worker
  RunPlan const* m_plan;
  std::unique_ptr<Trainer> m_trainer;
  std::unique_ptr<Worker> m_worker;
  std::unique_ptr<Server> m_server;
  Index m_applied = 0;
  std::int64_t m_tokens; ///< of a global batch
};

} // namespace trainstone
