#pragma once

// What the stages of a pipeline do, message by message: one list of instructions per stage, derived from an order of
// forwards and backwards and never written by hand. Owns the placement of messages and the numbers of buffers.
// Promises the fewest slots and buffers that the order allows. Does not prove that the programs are right
// (pipeline_proof.hpp does), and knows no times.
//
// Messages. A channel joins two neighbouring stages and has one direction and one kind of message, which arrive in the
// order in which they were sent. The last stage also sends activations to the first one, and the first one gradients to
// the last one, where a chunk ends. Sends only start: a stage waits for one when it needs the buffer again, or at once
// if messages are not to pass while it computes. A receive is posted one message ahead, as soon as the message before
// it has arrived.
//
// Memory. A slot has what one chunk keeps of one micro-batch, from its forward to its backward (or weights). An input
// buffer has the input of a chunk that receives one for as long, and begins with the receive. So a message that is
// received ahead has an input buffer more than there are slots. In a gradient buffer the gradient of the residual
// stream arrives, is worked on in place and is sent on. In the last stage it begins with the forward, because the head
// turns round at once.
//
// If no stage has a backward, the program is an evaluation: nothing is kept. A slot then ends with the send of what it
// has.

#include "parallel/pipeline/pipeline_schedules.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

enum class StageAct {
  receive,      ///< posts a receive
  wait_receive, ///< until the message is there
  forward,
  backward,
  weights,
  send,      ///< starts a send
  wait_send, ///< until the buffer is no longer read
};

enum class MessageKind { activation, gradient };

std::string_view to_string(MessageKind kind);

constexpr bool computes(StageAct act) {
  return act == StageAct::forward || act == StageAct::backward || act == StageAct::weights;
}

/// Fields that an act does not use are `none`.
struct StageInstruction {
  static constexpr Index none = -1;

  StageAct act;
  MessageKind kind = MessageKind::activation; ///< of messages
  Index micro_batch;
  Index chunk;           ///< of this stage, which reads what is received, or has made what is sent
  Index slot = none;     ///< of what computes, and of sent activations
  Index input = none;    ///< buffer of what computes, and of received activations
  Index gradient = none; ///< buffer of backward, of a forward that turns round, and of all messages with gradients

  bool operator==(StageInstruction const&) const = default;
};

/// "receive activation 3 into input 1", "forward 3, slot 0": chunks are named if there are several.
std::string to_string(StageInstruction const& instruction, Index chunks);

struct StageProgram {
  std::vector<StageInstruction> instructions = {};
  Index slots = 0;     ///< number of slots
  Index inputs = 0;    ///< number of input buffers
  Index gradients = 0; ///< number of gradient buffers

  bool operator==(StageProgram const&) const = default;
};

struct PipelineProgram {
  PipelineShape shape;
  bool splits_backward = false; ///< some act computes `weights`
  bool forward_only = false;    ///< an evaluation
  std::vector<StageProgram> stages = {};

  bool operator==(PipelineProgram const&) const = default;
};

/// The other end of a stage's messages.
struct StageNeighbours {
  Index stage;
  Index stages;

  constexpr Index sender(MessageKind kind) const { return kind == MessageKind::activation ? before() : after(); }
  constexpr Index receiver(MessageKind kind) const { return kind == MessageKind::activation ? after() : before(); }

private:
  constexpr Index before() const { return (stage + stages - 1) % stages; }
  constexpr Index after() const { return (stage + 1) % stages; }
};

/// Whether a chunk receives a message of this kind: its input, or the gradient of its output.
constexpr bool receives(PipelineShape const& shape, MessageKind kind, Index stage, Index chunk) {
  return shape.stages > 1 &&
         !(kind == MessageKind::activation ? shape.is_first(stage, chunk) : shape.is_last(stage, chunk));
}
/// Whether a chunk sends one: its output, or the gradient of its input.
constexpr bool sends(PipelineShape const& shape, MessageKind kind, Index stage, Index chunk) {
  return shape.stages > 1 &&
         !(kind == MessageKind::activation ? shape.is_last(stage, chunk) : shape.is_first(stage, chunk));
}

enum class ReceiveAhead { no, one_message };

/// When a stage waits for its sends.
enum class SendWaits {
  late,    ///< when it needs the buffer again: messages pass while it computes
  at_once, ///< behind the send: a stage either computes or sends
};

/// How messages and computation take turns.
struct MessagePolicy {
  ReceiveAhead ahead = ReceiveAhead::one_message;
  SendWaits waits = SendWaits::late;
};

/// The programs of all stages. Complexity: O(operations x log(slots)).
/// \param[in] orders  by stage; every backward after its forward, every `weights` after its backward
/// \throws Error if an order has an operation without the one that it needs
PipelineProgram make_pipeline_program(PipelineShape const& shape, std::vector<StageOrder> const& orders,
                                      MessagePolicy const& policy = {});

/// The program of one stage. Complexity: O(operations of the stage x log(slots)). \param[in] order  of the stage
StageProgram make_stage_program(PipelineShape const& shape, Index stage, StageOrder const& order,
                                MessagePolicy const& policy = {});

/// The operations of a program again, by stage.
std::vector<StageOrder> orders_of(PipelineProgram const& program);

} // namespace trainstone
