#pragma once

// The parts from which step_programs.cpp makes programs: an order, and passes. An order lists what is computed for one
// micro-batch. A pass copies a list and adds instructions. Each pass knows one thing: how parameters come together, or
// how gradients are added up.

#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"

#include <deque>
#include <vector>

namespace trainstone {

using Instructions = std::vector<Instruction>;

inline void append(Instructions& list, Instructions const& more) { list.insert(list.end(), more.begin(), more.end()); }

/// Forward, loss and backward of one micro-batch, all parts on this rank. If the loss is split, a chunk's backward
/// follows its loss.
Instructions training_order(PartTable const& parts, Index micro_batch);
/// Forward and loss.
Instructions evaluation_order(PartTable const& parts, Index micro_batch);

/// Where the head turns round: the loss of a micro-batch and, in a training, the head's backward. Chunk by chunk, if
/// the loss is split: then piece by piece.
void append_turn(Instructions& order, PartTable const& parts, Index micro_batch, bool trains,
                 ActivationBuffers const& buffers = {});

/// The unit whose parameters an instruction reads; none: it reads no parameters.
Index unit_read_by(Instruction const& instruction, PartTable const& parts);

/// The units in the order in which forward first reads them.
std::vector<Index> units_by_use(PartTable const& parts);

/// Before the backward of a block, its parts compute again what the block has not kept, unless it is still there:
/// blocks that compute again share the memory, and the one that ran forward last has left its own.
Instructions with_recomputation(Instructions const& order, PartTable const& parts);

/// Ranks that share the slices of a model: what computes is in the program piece by piece. Behind a piece that leaves a
/// part of a sum, or of a maximum, the ranks begin to bring it together. The pass waits before the piece that needs it,
/// or at once, if the plan does not overlap. A rank that is measured alone has the pieces, and brings nothing together.
Instructions with_exchanges(Instructions const& order, ShardPlan const& plan);

/// Sharded parameters: every use of a unit is preceded by a gather into a slot, gathers.prefetch uses ahead if the
/// plan overlaps. There are gathers.in_flight() slots. Instructions that follow each other and read the same unit are
/// one use.
Instructions with_gathers(Instructions const& order, ShardPlan const& plan);

/// Parameters that every rank keeps and owners update: the first use of a unit after an update waits until the unit
/// was published, and starts to publish the unit that is used gathers.prefetch later.
Instructions with_publication(Instructions const& order, ShardPlan const& plan);

/// What an update starts: the first units, or all of them, one by one, if the plan does not overlap.
Instructions publication_after_update(ShardPlan const& plan);

/// Adds up gradients. One object sees all micro-batches of a step, in order.
///
/// If fresh gradients lie in memory of their own, a bucket is reduced over ranks and then added to the sums. In the
/// last micro-batch its sums may meet across replicas; they start to do so when the next unit's reductions start. The
/// pass waits for a bucket when another bucket needs the scratch or the memory. Otherwise a bucket is reduced in place,
/// after the last micro-batch. Then a reduction whose scratch is in use starts when the earlier one has ended. Such
/// reductions keep their order.
///
/// Where workers do not wait for each other, reductions start behind the last backward.
///
/// If the plan overlaps, a bucket that is a slice of a block is reduced as soon as it is complete: then the block's
/// backward is in the program piece by piece, and reductions stand between the pieces.
class GradientPass {
public:
  /// The buckets that a program has of a run.
  enum class Buckets {
    all,
    one_per_run, ///< it stands for all of them and has the run's number
  };

  /// \param[in] micro_batches  of the step, in place of layout.rank_micro_batches
  GradientPass(ShardPlan const& plan, Index micro_batches, Buckets buckets)
      : m_plan(&plan), m_reductions(&plan.reductions), m_micro_batches(micro_batches), m_buckets(buckets) {}

  /// \param[in] order  of the next micro-batch, which may have instructions of other passes
  Instructions operator()(Instructions const& order);
  /// Waits for everything that has been started, and adds the parts of the token table's gradient that lie apart. Where
  /// servers update unit by unit, there is nothing to do.
  Instructions finish();

private:
  enum class Stage { reduction, sums };
  struct InFlight {
    Index bucket;
    Index run;
    Index micro_batch;
    Stage stage;
  };

  void before_backward(Instruction const& backward, Instructions& out);
  void add_backward(Instruction backward, Instructions& out);
  void after_piece(Index unit, Index complete_from, Index micro_batch, Instructions& out);
  Index complete_buckets(Index unit, Index complete_from, Index micro_batch) const;
  void start(Index bucket, Index run, Index micro_batch, Instructions& out);
  void begin(InFlight const& reduction, Instructions& out);
  void advance(InFlight& work, Instructions& out) const;
  void meet_across_replicas(Index oldest, Instructions& out);
  void retire_oldest(Instructions& out);
  bool meets_across_replicas(InFlight const& work) const;
  bool is_last(Index micro_batch) const { return micro_batch + 1 == m_micro_batches; }

  ShardPlan const* m_plan;
  ReductionPlan const* m_reductions;
  Index m_micro_batches;
  Buckets m_buckets;
  Index m_started = 0;              ///< buckets of the run whose reductions start
  std::deque<InFlight> m_in_flight; ///< in the order in which they were started
  std::vector<InFlight> m_held;     ///< until the end of backward
};

} // namespace trainstone
