#pragma once

// The order of a training step as a value. A program is a list of instructions for one rank. An instruction starts
// work, does work, or waits for work that an earlier instruction has started. Everything that overlaps is visible as
// the distance between a start and its wait. Owns the vocabulary. Knows neither memory nor MPI.

#include "core/index.hpp"
#include "model/activation_plan.hpp"
#include "model/part_lists.hpp"
#include "parallel/pipeline/stage_program.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

struct ShardPlan;

/// What an instruction does. Parts are numbered in the order of forward (model/part.hpp).
enum class Act {
  load,        ///< brings the tokens of a micro-batch to this rank
  receive,     ///< starts to receive what a chunk of a pipeline's stage needs: its input, or its output's gradient
  send,        ///< starts to send what a chunk has made: its output, or its input's gradient
  exchange,    ///< starts to bring together what the ranks of a tensor group have of a sum or a maximum over slices
  fetch,       ///< starts to read this rank's shares of a unit's parameters from their file, for its gather
  gather,      ///< starts to bring the parameters of a unit together in a slot
  forward,     ///< of a part
  recompute,   ///< of a part: what its block has not kept for backward
  loss,        ///< of a micro-batch: its losses and, in a training, the gradient of the logits
  backward,    ///< of a part, or of one piece of it
  fold,        ///< gives a unit's gradient of a micro-batch its place in the balanced tree over micro-batches
  reduce,      ///< starts to add up a bucket's gradients of a micro-batch over ranks
  accumulate,  ///< adds what was reduced of a bucket to its sums over micro-batches
  reduce_sums, ///< starts to add up a bucket's sums over replicas
  tie,         ///< adds embed's part of the token table's gradient to head's, where they lie apart: on this rank, or on
               ///< the first and on the last stage, which then meet
  agree,       ///< losses and requests of all ranks meet
  norm,        ///< of the summed gradient
  update,      ///< of the parameters that this rank owns, or of those of a unit
  publish,     ///< starts to bring a unit's updated parameters to all ranks that keep them, unless they are there
  wait,        ///< for what another act has started
};

std::string_view to_string(Act act);

/// Whether an act only starts what a later wait waits for.
constexpr bool only_starts(Act act) {
  return act == Act::receive || act == Act::send || act == Act::exchange || act == Act::fetch || act == Act::gather ||
         act == Act::publish || act == Act::reduce || act == Act::reduce_sums;
}

struct Instruction {
  static constexpr Index none = -1;

  Act act;
  Index subject = none; ///< a unit (fetch, gather, publish, fold, update of one unit), a part (forward, recompute,
                        ///< backward), a bucket (reduce and the like), a MessageKind (send, receive), a SliceExchange
  Index micro_batch = none; ///< among those of this rank and step
  Index slot = none; ///< of fetched or gathered parameters, or of scratch; of exchange: the chunk of rows, of several
  Act started = Act::wait; ///< by wait: the act that it waits for
  Index piece = none;      ///< of what computes: the piece of it (part_pieces() of model/part_kernels.hpp), if other
                           ///< instructions stand between pieces; of messages: the chunk of the stage
  ActivationBuffers buffers = {}; ///< of what computes, and of messages

  bool operator==(Instruction const&) const = default;
};

/// Of send and receive.
constexpr MessageKind message_kind(Instruction const& instruction) {
  return static_cast<MessageKind>(instruction.subject);
}

/// Of exchange.
constexpr SliceExchange exchange_of(Instruction const& instruction) {
  return static_cast<SliceExchange>(instruction.subject);
}

constexpr Index number_of_chunk(Instruction const& exchange) {
  return exchange.slot == Instruction::none ? 0 : exchange.slot;
}

/// Whether it computes activations or gradients.
constexpr bool computes(Act act) {
  return act == Act::forward || act == Act::recompute || act == Act::loss || act == Act::backward;
}

// Of an instruction that computes.

Pass pass_of(Act act);
/// Of the loss: head.
Part part_of(Instruction const& instruction, PartTable const& parts);
/// The pieces of its pass; and which of them it runs.
std::vector<PartPiece> pieces_of(Instruction const& instruction, PartTable const& parts);
Range pieces_run(Instruction const& instruction, PartTable const& parts);
/// Whether it runs the first piece of its pass, or the last one.
bool begins_pass(Instruction const& instruction);
bool ends_pass(Instruction const& instruction, PartTable const& parts);
/// The chunk of rows that it is of, if its loss is split and it is of one.
std::optional<Index> chunk_of(Instruction const& instruction, PartTable const& parts);
/// Whether it runs the last piece of its chunk, or of its pass, if it is of no chunk.
bool ends_chunk(Instruction const& instruction, PartTable const& parts);

/// "gather block 1 into slot 0", "wait for reduce bucket 3, micro-batch 2"
std::string to_string(Instruction const& instruction, ShardPlan const& plan);

/// Instructions that a rank runs `times` times, with micro-batches that count up by one.
struct Segment {
  std::vector<Instruction> instructions;
  Index times = 1;

  bool operator==(Segment const&) const = default;
};

/// The same instruction, so many micro-batches later.
constexpr Instruction later(Instruction instruction, Index micro_batches) {
  if (instruction.micro_batch != Instruction::none) instruction.micro_batch += micro_batches;
  return instruction;
}

/// Calls visit(instruction) for every instruction of the segments, as often as a rank runs it.
template <class Visit>
void for_each_instruction(std::vector<Segment> const& segments, Visit const& visit) {
  for (Segment const& segment : segments)
    for (Index time = 0; time < segment.times; ++time)
      for (Instruction const& instruction : segment.instructions) visit(later(instruction, time));
}

/// The programs of one rank. A training repeats `step` and, unless the update is skipped, `update`.
struct StepProgram {
  std::vector<Segment> step;       ///< forward, loss, backward, sums of gradients and losses, norm
  std::vector<Segment> update;     ///< the update, and what it starts
  std::vector<Segment> evaluation; ///< one micro-batch, forward only

  bool operator==(StepProgram const&) const = default;
};

} // namespace trainstone
