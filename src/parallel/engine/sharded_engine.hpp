#pragma once

// One engine for data parallelism (also naive), ZeRO-1, -2, -3 (FSDP) and HSDP. Owns the training state, the
// communicators of the mesh, and the collectives of parameters, gradients and norm. It executes those instructions of
// a step program that move parameters and gradients. If the plan overlaps, kernels drive the collectives in flight.
// Promises: if ranks hold equal parameters before a step, they hold the same bits after it; the engine allocates and
// sends exactly what the plan says. Does not run the model and does not know about data.

#include "comm/execution/buffers.hpp"
#include "comm/execution/communicator.hpp"
#include "comm/execution/execution_queue.hpp"
#include "core/launch.hpp"
#include "parallel/engine/gradient_norm.hpp"
#include "parallel/engine/gradient_reducer.hpp"
#include "parallel/engine/mesh_communicators.hpp"
#include "parallel/engine/optimizer_state.hpp"
#include "parallel/engine/optimizer_update.hpp"
#include "parallel/engine/parameter_gatherer.hpp"
#include "parallel/engine/parameter_shares.hpp"
#include "parallel/engine/stage_exchange.hpp"
#include "parallel/engine/tensor_exchange.hpp"
#include "parallel/plan/decay_runs.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace trainstone {

class ShardedEngine {
public:
  /// Takes engine_buffers(plan) from `buffers` and engine_pinned_buffers(plan) from `pinned`. Collective; everything
  /// referred to must outlive the object.
  ShardedEngine(ExecutionSpace const& exec, Communicator const& world, MemoryLedger& ledger, ShardPlan const& plan,
                ParameterTable const& table, Arena& buffers, PinnedMemory& pinned);
  ShardedEngine(ShardedEngine const&) = delete;
  ShardedEngine& operator=(ShardedEngine const&) = delete;
  ~ShardedEngine();

  /// Further partners: ranks that form a group of the same plan with this one, in which it has the same index. A server
  /// that does not keep workers waiting for each other has a group with every worker. They have old parameters.
  /// Collective over `world`, which must outlive the object.
  void add_partners(Communicator const& world);
  /// From now on parameters, gradients and norms are exchanged with these partners, numbered in the order in which they
  /// came; 0: those of the constructor. Nothing may be in flight.
  void meet(std::size_t partners);

  /// Where a stage of a pipeline has what it exchanges with other stages; once, before the first send or receive.
  /// Collective over the pipeline.
  void prepare_messages(StageBuffers const& buffers) { m_stages.value().prepare(buffers); }

  /// Memory for what the ranks of a tensor group bring together (ActivationSet::exchanged).
  Arena exchanged_memory() { return m_tensor.value().memory(); }
  /// Where the model has that; once, before the first exchange. Collective over the tensor group.
  void prepare_exchanges(ExchangedVectors const& model) { m_tensor.value().prepare(model); }

  /// Executes send, receive, exchange, gather, publish, fold, reduce, accumulate, reduce_sums, tie, the update of a
  /// unit, and waits for what these have started. While a server waits for a bucket, it updates and publishes units
  /// whose gradients are there, before their turn in the program.
  void execute(Instruction const& instruction);
  /// The whole parameters of a unit: in a slot, if they are sharded. Valid until another unit is gathered there.
  ConstStoredVector parameters(Index unit, Index slot) const;
  /// Where the backward of a part leaves the gradient of a unit.
  /// \param[in] begins  nothing has written this gradient in this micro-batch yet
  GradientTarget gradient_target(Index unit, Index micro_batch, bool begins) {
    return reducer().target(unit, micro_batch, begins);
  }

  /// The norm of the summed gradients of the step, the same on all ranks. All reductions have ended.
  double gradient_norm();
  /// Updates parameters and moments with numbers.gradient_scale times the gradients. Publications are then due.
  void update(OptimizerConfig const& optimizer, UpdateNumbers const& numbers);
  /// By priority: what the updates of the next step take. None: its units are not updated, and not published.
  void expect_updates(OptimizerConfig const& optimizer, std::optional<UpdateNumbers> const& numbers);
  /// Others have updated: publications are due.
  void outdate_parameters();
  /// Continues the collectives in flight, without waiting.
  void advance();
  /// While it lives, every launch of this thread calls advance(), if the plan overlaps. Otherwise no launch does.
  [[nodiscard]] BetweenLaunches::Scoped drive_between_launches();
  /// Waits for all collectives in flight, and for publications that are due, but not to one of several partners. Then
  /// parameters are complete.
  void finish();

  /// The index of the first group in backward's order whose summed gradient is not finite here, or -1. Waits.
  Index find_non_finite_group(Vector<std::int64_t> count);

  /// Sets parameters. `fill` is called for every group, for one part of this rank's share after the other. It gets the
  /// range of the group's elements (padded) that belong into `values`. The values are rounded to the type of the model.
  /// If the plan sends the state from rank 0, only rank 0 calls `fill`, and all ranks get the parameters and moments of
  /// rank 0. Collective; waits. If `fill` throws, all ranks throw the same.
  void set_parameters(std::function<void(Index group, Range part, Vector<float> values)> const& fill);
  /// The same of parameters (vector 0) and moments.
  void set_state(std::function<void(Index vector, Index group, Range part, Vector<float> values)> const& fill);
  /// Sets this rank's share of all moments to 0: the optimizer begins anew. Enqueued.
  void clear_moments();
  /// Hands a part of this rank's share of a group to `look`, in pieces, in order: of the master copy or else of the
  /// fp32 parameters (vector 0), and of moments. Ranges count from the share's begin. Waits.
  void read_state(Index vector, Index group, Range range,
                  std::function<void(Range const& piece, Vector<float> const& values)> const& look) const;
  /// Hands every group in turn, whole, to `read`, but on servers; collective.
  void read_parameters(std::function<void(Index group, ConstStoredVector whole)> const& read);
  /// What updates and gathers have moved between kernels, host and files, and the seconds in which they waited for
  /// files.
  OptimizerState const& optimizer_state() const { return m_state; }
  ParameterShares const& parameter_shares() const { return m_parameters; }
  /// This rank's share of the parameters of a group, of their master copy (fp32: the parameters themselves), and of
  /// the group's summed gradient. The optimizer's vectors must lie with the kernels.
  StoredVector parameter_share(Index group) const { return m_parameters.share(group); }
  Vector<float> master_share(Index group) const;
  /// This rank's share of a vector that the optimizer keeps, one of plan().layout.moments.
  Vector<float> moment_share(Index moment, Index group) const;
  StoredVector gradient_share(Index group) const { return reducer().share(group); }
  /// All parameters of a group, if every rank holds them; finish() comes first.
  StoredVector whole_parameters(Index group) const { return gatherer().whole_group(group); }

  ShardPlan const& plan() const { return *m_plan; }
  ParameterTable const& table() const { return *m_table; }
  MeshCommunicators& communicators() { return m_communicators[m_met]; }
  /// For collectives of the caller, with which those in flight go on.
  ExecutionQueue& queue() { return m_queue; }

private:
  /// While it lives, kernels do not drive the collectives.
  class NoProgress {
  public:
    explicit NoProgress(bool& busy) : m_busy(busy), m_before(std::exchange(busy, true)) {}
    NoProgress(NoProgress const&) = delete;
    NoProgress& operator=(NoProgress const&) = delete;
    ~NoProgress() { m_busy = m_before; }

  private:
    bool& m_busy;
    bool m_before;
  };
  /// What is exchanged with some partners.
  struct Exchanges {
    GradientReducer reducer;
    ParameterGatherer gatherer;
    GradientNorm norm;
  };
  /// The same memory serves the exchanges with all partners, one after the other.
  struct ExchangeMemory {
    GradientReducer::Memory reductions;
    std::vector<StoredVector> gather_scratch;
    std::vector<std::span<std::byte>> gather_staging;
    Arena norm;
    std::span<std::byte> norm_staging;
  };

  GradientReducer& reducer() { return m_exchanges[m_met].reducer; }
  GradientReducer const& reducer() const { return m_exchanges[m_met].reducer; }
  ParameterGatherer& gatherer() { return m_exchanges[m_met].gatherer; }
  ParameterGatherer const& gatherer() const { return m_exchanges[m_met].gatherer; }
  void add_exchanges(MeshCommunicators& communicators, Arena& norm_memory);
  void broadcast_state();
  void set_vectors(Index count,
                   std::function<void(Index vector, Index group, Range part, Vector<float> values)> const& fill);
  void fill_vector(Index vector, Index group,
                   std::function<void(Index vector, Index group, Range part, Vector<float> values)> const& fill);
  /// Of groups [first, last].
  void update(Index first, Index last, OptimizerConfig const& optimizer, UpdateNumbers const& numbers);
  void round_sums(Index first, Index last);
  void update(OptimizerState::Chunk const& chunk, OptimizerConfig const& optimizer, UpdateNumbers const& numbers);
  void wait_reduced(Index bucket);
  void update_what_is_there();
  void fetch(Index unit, Index slot);
  void wait_fetched(Index slot);
  void update_unit(Index unit);
  void connect_stages(Arena& buffers, PinnedMemory& pinned);

  ExecutionSpace m_exec, m_communication;
  ShardPlan const* m_plan;
  StateLayout const* m_layout;
  ParameterTable const* m_table;
  std::deque<MeshCommunicators> m_communicators; ///< by partners
  OptimizerState m_state;
  mutable ParameterShares m_parameters; ///< which brings those to memory that are looked at; its thread may use memory
                                        ///< of m_state's chunks, so it ends first
  StateMemory m_slots, m_gradients, m_fresh_gradients;
  ExecutionQueue m_queue;
  ExchangeMemory m_exchange_memory;
  std::deque<Exchanges> m_exchanges;      ///< by partners
  std::size_t m_met = 0;                  ///< the partners of now
  std::optional<TensorExchange> m_tensor; ///< of a tensor group
  std::optional<StageExchange> m_stages;  ///< of a pipeline
  std::vector<DecayRun> m_decay_runs;
  /// By priority: what updates take, and the units that this step is still to update.
  struct Expected {
    OptimizerConfig optimizer;
    std::optional<UpdateNumbers> numbers;
    std::vector<bool> units;
  };
  Expected m_expected;
  bool m_busy = false; ///< inside of a function that starts or waits for collectives
};

} // namespace trainstone
