#pragma once

// When every instruction of a pipeline begins and ends: plays the programs of all stages with prices. A message begins
// when its send and its receive have been posted, and ends `message` later; stages compute meanwhile. A stage is idle
// while it waits. Pure. Does not know where prices come from.

#include "parallel/pipeline/stage_program.hpp"

#include <vector>

namespace trainstone {

/// A time in whole units, which the user chooses: nanoseconds of a run, or parts of a unit of a table. So equal times
/// compare equal.
using Ticks = Index;

struct ChunkPrice {
  Ticks forward = 0;
  Ticks backward = 0; ///< gradients of inputs
  Ticks weights = 0;  ///< gradients of parameters; part of `backward` in programs that do not split it

  constexpr Ticks sum() const { return forward + backward + weights; }
  bool operator==(ChunkPrice const&) const = default;
};

struct PipelinePrices {
  std::vector<std::vector<ChunkPrice>> chunks; ///< [stage][chunk]
  Ticks head = 0;    ///< forward, loss and backward of the head, at the end of the last chunk's forward
  Ticks message = 0; ///< each message

  /// What a stage computes of one micro-batch.
  Ticks load(Index stage) const;
  /// Of one chunk: what a forward, a backward or `weights` takes.
  Ticks of(PipelineShape const& shape, bool splits_backward, StageAct act, Index stage, Index chunk) const;
};

/// The prices of equal stages. \param[in] stage  of one stage; its chunks are equal
/// \throws Error unless the number of chunks divides the times
PipelinePrices equal_prices(PipelineShape const& shape, ChunkPrice const& stage, Ticks message = 0);

struct PipelineSpan {
  Index instruction; ///< its number in the stage's program
  Ticks begin;
  Ticks end;

  bool operator==(PipelineSpan const&) const = default;
};

/// From a moment on, so many slots have something.
struct SlotsInUse {
  Ticks time;
  Index slots;

  bool operator==(SlotsInUse const&) const = default;
};

struct StageTimeline {
  Ticks busy = 0;                  ///< sum of what it computes
  std::vector<PipelineSpan> spans; ///< of all instructions, in order; of a wait, what it waits
  std::vector<SlotsInUse> slots;   ///< ascending times; a slot is in use from the begin of a forward
};

struct MessageSpan {
  MessageKind kind;
  Index sender;
  Index receiver;
  Index micro_batch;
  Index chunk; ///< of the receiver
  Ticks begin;
  Ticks end;
};

struct PipelineTimeline {
  Ticks time = 0; ///< from the begin to the end of the last operation
  std::vector<StageTimeline> stages;
  std::vector<MessageSpan> messages; ///< in no order

  Ticks busy() const; ///< sum over stages
  Ticks idle(Index stage) const { return time - stages[static_cast<std::size_t>(stage)].busy; }
  /// Idle time as a share of all stages' time.
  double idle_share() const;
  /// The largest number of slots in use at a time.
  Index peak_slots(Index stage) const;
};

/// \throws Error if a program waits for ever; prove programs first
/// Complexity: O(instructions).
PipelineTimeline play_pipeline(PipelineProgram const& program, PipelinePrices const& prices);

/// The time of messages that nothing hides: the time with them, minus the time without.
Ticks exposed_messages(PipelineProgram const& program, PipelinePrices const& prices);

} // namespace trainstone
