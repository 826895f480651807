#include "parallel/engine/stage_exchange.hpp"

#include "core/error.hpp"
#include "parallel/plan/engine_memory.hpp"

namespace trainstone {

StageExchange::StageExchange(ExecutionSpace const& exec, ExecutionSpace const& communication,
                             MeshCommunicators& communicators, ExecutionQueue& queue, ShardPlan const& plan,
                             StoredVector table, StoredVector scratch, PinnedMemory& pinned)
    : m_exec(exec), m_communication(communication), m_queue(&queue), m_plan(&plan) {
  PipelineShape const& shape = plan.pipeline.shape;
  for (MessageKind const kind : {MessageKind::activation, MessageKind::gradient})
    for (Index sender = 0; sender < shape.stages; ++sender) {
      bool const is_used = sends(shape, kind, sender, 0) || sends(shape, kind, sender, shape.chunks - 1);
      if (!is_used) continue;
      if (std::optional<Communicator> mine = communicators.split(channel_stages(shape, kind, sender)))
        m_channels.emplace(std::pair(kind, sender), Channel{std::move(*mine)});
    }
  m_ends = communicators.split({0, static_cast<Rank>(shape.stages - 1)});
  for (PreparedMessage const& message : prepared_messages(plan.pipeline))
    m_staging[message] = pinned.take(pinned_message_bytes(plan, message));
  if (!m_ends) return;
  PlannedCollective const& sum = plan.pipeline.table.value();
  m_table.emplace(communication, *m_ends, schedule_of(sum, plan.layout.mesh, plan.layout.rank), Operation::sum, table,
                  scratch, ExecutionOptions{.staging = pinned.take(pinned_table_bytes(plan)), .caller = &m_exec});
}

StoredVector StageExchange::data_of(PreparedMessage const& message, StageBuffers const& buffers) const {
  auto const at = [](Index index) { return static_cast<std::size_t>(index); };
  if (message.kind == MessageKind::gradient) return buffers.gradients.at(at(message.buffer));
  if (!message.sends) return buffers.inputs.at(at(message.buffer));
  return buffers.outputs.at(at(message.chunk)).at(at(message.buffer));
}

void StageExchange::prepare(StageBuffers const& buffers) {
  for (auto& [name, channel] : m_channels) channel.tag = std::make_shared<SharedTag>(channel.communicator.take_tag());
  StateLayout const& layout = m_plan->layout;
  for (auto const& [message, staging] : m_staging) {
    StoredVector const data = data_of(message, buffers);
    StoredVector none = data;
    none.size = 0;
    Index const sender = m_plan->pipeline.sender(message.sends, message.kind);
    Channel& channel = m_channels.at({message.kind, sender});
    PlannedCollective const planned = planned_message(m_plan->pipeline, layout, message.kind, sender);
    m_messages.try_emplace(message, m_communication, channel.communicator,
                           schedule_of(planned, layout.mesh, layout.rank), Operation::sum, data, none,
                           ExecutionOptions{.staging = staging, .caller = &m_exec, .tag = channel.tag});
  }
}

Execution& StageExchange::execution(Instruction const& message, Act act) {
  auto const found =
      m_messages.find(prepared_message(act == Act::send, message_kind(message), message.piece, message.buffers));
  TRAINSTONE_REQUIRE(found != m_messages.end(), "\"{}\" has not been prepared", to_string(message, *m_plan));
  return found->second;
}

void StageExchange::tie() {
  if (!m_table) return;
  m_queue->start(*m_table);
  m_queue->wait(*m_table);
}

} // namespace trainstone
