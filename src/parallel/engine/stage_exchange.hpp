#pragma once

// What the stages of a pipeline exchange: messages between neighbours, and the sum of the token table's gradient over
// the first and the last stage. Owns the communicators of channels and the prepared messages. A channel joins two
// stages for one direction and one kind of message. Its messages meet in the order in which they are started, whatever
// buffers they use. Promises: sends and receives only start; the queue drives them. Does not own buffers, and does not
// decide what is sent when.

#include "comm/execution/buffers.hpp"
#include "comm/execution/communicator.hpp"
#include "comm/execution/execution_queue.hpp"
#include "core/memory.hpp"
#include "core/stored.hpp"
#include "parallel/engine/mesh_communicators.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace trainstone {

/// The memory of the model that messages use.
struct StageBuffers {
  std::vector<StoredVector> inputs;               ///< by input buffer
  std::vector<StoredVector> gradients;            ///< by gradient buffer
  std::vector<std::vector<StoredVector>> outputs; ///< by chunk, by slot; of a chunk that sends no output empty
};

class StageExchange {
public:
  /// \param[in] exec           instance of the kernels that make and read what is sent
  /// \param[in] communication  instance of the messages
  /// \param[in] line           of this rank's pipeline
  /// \param[in] table          this rank's share of the token table's summed gradient, if its stage has the table
  /// \param[in] scratch        as planned, for its sum
  /// Takes its part of engine_pinned_buffers(plan) from `pinned`. Collective; everything referred to must outlive the
  /// object.
  StageExchange(ExecutionSpace const& exec, ExecutionSpace const& communication, MeshCommunicators& communicators,
                ExecutionQueue& queue, ShardPlan const& plan, StoredVector table, StoredVector scratch,
                PinnedMemory& pinned);
  StageExchange(StageExchange const&) = delete;
  StageExchange& operator=(StageExchange const&) = delete;

  /// Prepares all messages; once, before the first one. Collective.
  void prepare(StageBuffers const& buffers);

  /// Starts a send or a receive; waits for one.
  void start(Instruction const& message) { m_queue->start(execution(message, message.act)); }
  void wait(Instruction const& message) { m_queue->wait(execution(message, message.started)); }
  /// The first and the last stage add up their parts of the token table's gradient. Waits. Other stages do nothing.
  void tie();

private:
  struct Channel {
    Communicator communicator;
    std::shared_ptr<SharedTag> tag = nullptr;
  };

  Execution& execution(Instruction const& message, Act act);
  StoredVector data_of(PreparedMessage const& message, StageBuffers const& buffers) const;

  ExecutionSpace m_exec, m_communication;
  ExecutionQueue* m_queue;
  ShardPlan const* m_plan;
  std::map<std::pair<MessageKind, Index>, Channel> m_channels; ///< of this rank, by kind and sender
  std::optional<Communicator> m_ends;
  std::map<PreparedMessage, std::span<std::byte>> m_staging;
  std::map<PreparedMessage, Execution> m_messages;
  std::optional<Execution> m_table;
};

} // namespace trainstone
