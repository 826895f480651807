#include "parallel/pipeline/stage_program.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <utility>

namespace trainstone {

namespace {

using Work = std::pair<Index, Index>; // micro-batch, chunk

/// Buffers of one kind. The first free one is taken, so that their number is the peak of those in use.
class Buffers {
public:
  explicit Buffers(PipelineShape const& shape)
      : m_chunks(shape.chunks), m_numbers(static_cast<std::size_t>(shape.micro_batches * shape.chunks), none) {}

  Index take(Work const& work) {
    TRAINSTONE_REQUIRE(!has(work), "micro-batch {}, chunk {} is in its order twice", work.first, work.second);
    return place(work) = m_free.empty() ? m_count++ : take_free();
  }
  Index number(Work const& work) const {
    TRAINSTONE_REQUIRE(has(work), "micro-batch {}, chunk {} has no buffer: its order lacks an operation", work.first,
                       work.second);
    return m_numbers[index(work)];
  }
  bool has(Work const& work) const { return is_in_shape(work) && m_numbers[index(work)] != none; }
  void release(Work const& work) {
    m_free.push(number(work));
    place(work) = none;
  }
  void hand_over(Work const& from, Work const& to) {
    place(to) = number(from);
    place(from) = none;
  }
  Index count() const { return m_count; }

private:
  static constexpr Index none = -1;

  std::size_t index(Work const& work) const { return static_cast<std::size_t>(work.first * m_chunks + work.second); }
  bool is_in_shape(Work const& work) const {
    return 0 <= work.first && 0 <= work.second && work.second < m_chunks && index(work) < m_numbers.size();
  }
  Index& place(Work const& work) {
    TRAINSTONE_REQUIRE(is_in_shape(work), "there is no micro-batch {}, chunk {}", work.first, work.second);
    return m_numbers[index(work)];
  }
  Index take_free() {
    Index const number = m_free.top();
    m_free.pop();
    return number;
  }

  Index m_chunks;
  std::priority_queue<Index, std::vector<Index>, std::greater<>> m_free;
  Index m_count = 0;
  std::vector<Index> m_numbers; ///< by micro-batch and chunk
};

class StageWriter {
public:
  StageWriter(PipelineProgram const& program, Index stage, StageOrder const& order, MessagePolicy const& policy)
      : m_shape(program.shape),
        m_stage(stage),
        m_order(order),
        m_splits(program.splits_backward),
        m_forward_only(program.forward_only),
        m_ahead(policy.ahead == ReceiveAhead::one_message),
        m_waits_late(policy.waits == SendWaits::late),
        m_slots(m_shape),
        m_inputs(m_shape),
        m_gradient_buffers(m_shape) {
    m_program.instructions.reserve(5 * order.size());
    for (ChunkOperation const& operation : order) {
      Work const work(operation.micro_batch, operation.chunk);
      if (operation.act == ChunkAct::forward && receives(m_shape, MessageKind::activation, stage, operation.chunk))
        m_activations.needed.push_back(work);
      if (operation.act == ChunkAct::backward && receives(m_shape, MessageKind::gradient, stage, operation.chunk))
        m_gradients.needed.push_back(work);
    }
  }

  StageProgram write() {
    if (m_ahead) {
      post(MessageKind::activation);
      post(MessageKind::gradient);
    }
    for (ChunkOperation const& operation : m_order) {
      Work const work(operation.micro_batch, operation.chunk);
      switch (operation.act) {
      case ChunkAct::forward: forward(work); break;
      case ChunkAct::backward: backward(work); break;
      case ChunkAct::weights: weights(work); break;
      }
    }
    if (m_sent_gradient) wait_sent_gradient();
    if (m_sent_activation) wait_sent_activation();
    m_program.slots = m_slots.count();
    m_program.inputs = m_inputs.count();
    m_program.gradients = m_gradient_buffers.count();
    return std::move(m_program);
  }

private:
  /// Receives of a kind, in the order in which they are needed.
  struct Receives {
    std::vector<Work> needed;
    std::size_t posted = 0;
  };

  StageInstruction& add(StageAct act, MessageKind kind, Work const& work) {
    m_program.instructions.push_back({act, kind, work.first, work.second});
    return m_program.instructions.back();
  }
  StageInstruction& add(StageAct act, Work const& work) {
    StageInstruction& instruction = add(act, MessageKind::activation, work);
    instruction.slot = m_slots.number(work);
    if (m_inputs.has(work)) instruction.input = m_inputs.number(work);
    return instruction;
  }

  Receives& receives_of(MessageKind kind) { return kind == MessageKind::activation ? m_activations : m_gradients; }

  /// The next receive of the kind, if there is one.
  void post(MessageKind kind) {
    Receives& ahead = receives_of(kind);
    if (ahead.posted == ahead.needed.size()) return;
    Work const work = ahead.needed[ahead.posted++];
    StageInstruction& receive = add(StageAct::receive, kind, work);
    if (kind == MessageKind::activation)
      receive.input = m_inputs.take(work);
    else
      receive.gradient = m_gradient_buffers.take(work);
  }

  void await(MessageKind kind, Work const& work) {
    if (!m_ahead) post(kind);
    StageInstruction& wait = add(StageAct::wait_receive, kind, work);
    if (kind == MessageKind::activation)
      wait.input = m_inputs.number(work);
    else
      wait.gradient = m_gradient_buffers.number(work);
    if (m_ahead) post(kind);
  }

  void forward(Work const& work) {
    bool const turns_round = m_shape.is_last(m_stage, work.second);
    if (receives(m_shape, MessageKind::activation, m_stage, work.second)) await(MessageKind::activation, work);
    m_slots.take(work);
    StageInstruction& instruction = add(StageAct::forward, work);
    if (turns_round && !m_forward_only) instruction.gradient = m_gradient_buffers.take(work);
    bool const has_send = sends(m_shape, MessageKind::activation, m_stage, work.second);
    if (m_forward_only && m_sent_activation) wait_sent_activation();
    if (has_send) add(StageAct::send, MessageKind::activation, work).slot = m_slots.number(work);
    if (has_send && !m_waits_late) wait_send(work);
    if (!m_forward_only) return;
    if (m_inputs.has(work)) m_inputs.release(work);
    if (has_send && m_waits_late)
      m_sent_activation = work;
    else
      m_slots.release(work);
  }

  void backward(Work const& work) {
    if (receives(m_shape, MessageKind::gradient, m_stage, work.second)) await(MessageKind::gradient, work);
    if (m_waits_late && sends(m_shape, MessageKind::activation, m_stage, work.second)) wait_send(work);
    Index const gradient = take_gradient(work);
    add(StageAct::backward, work).gradient = gradient;
    if (!m_splits) release(work);
    if (sends(m_shape, MessageKind::gradient, m_stage, work.second)) {
      if (m_sent_gradient) wait_sent_gradient();
      add(StageAct::send, MessageKind::gradient, work).gradient = gradient;
      m_sent_gradient = work;
      if (!m_waits_late) wait_sent_gradient();
    } else if (m_shape.is_first(m_stage, work.second)) {
      m_gradient_buffers.release(work);
    }
  }

  /// The gradient of a chunk's output: received, turned round by the head, or left by the next chunk of a lone stage.
  Index take_gradient(Work const& work) {
    if (!m_gradient_buffers.has(work)) m_gradient_buffers.hand_over({work.first, work.second + 1}, work);
    return m_gradient_buffers.number(work);
  }

  void weights(Work const& work) {
    add(StageAct::weights, work);
    release(work);
  }

  void release(Work const& work) {
    m_slots.release(work);
    if (m_inputs.has(work)) m_inputs.release(work);
  }

  /// For a sent activation.
  void wait_send(Work const& work) {
    add(StageAct::wait_send, MessageKind::activation, work).slot = m_slots.number(work);
  }

  void wait_sent_activation() {
    wait_send(*m_sent_activation);
    m_slots.release(*m_sent_activation);
    m_sent_activation.reset();
  }

  void wait_sent_gradient() {
    add(StageAct::wait_send, MessageKind::gradient, *m_sent_gradient).gradient =
        m_gradient_buffers.number(*m_sent_gradient);
    m_gradient_buffers.release(*m_sent_gradient);
    m_sent_gradient.reset();
  }

  PipelineShape m_shape;
  Index m_stage;
  StageOrder const& m_order;
  bool m_splits;
  bool m_forward_only;
  bool m_ahead;
  bool m_waits_late;
  Receives m_activations, m_gradients;
  Buffers m_slots, m_inputs, m_gradient_buffers;
  std::optional<Work> m_sent_gradient;   ///< nobody has waited for its send
  std::optional<Work> m_sent_activation; ///< likewise, of an evaluation
  StageProgram m_program;
};

std::string buffer_text(StageInstruction const& one) {
  if (one.act == StageAct::receive || one.act == StageAct::wait_receive)
    return one.kind == MessageKind::activation ? fmt::format(" into input {}", one.input)
                                               : fmt::format(" into gradient {}", one.gradient);
  if (one.kind == MessageKind::activation) return fmt::format(" from slot {}", one.slot);
  return fmt::format(" from gradient {}", one.gradient);
}

std::string_view verb(StageAct act) {
  switch (act) {
  case StageAct::receive: return "receive";
  case StageAct::wait_receive: return "wait for receive of";
  case StageAct::forward: return "forward";
  case StageAct::backward: return "backward";
  case StageAct::weights: return "weights";
  case StageAct::send: return "send";
  case StageAct::wait_send: return "wait for send of";
  }
  return "unknown";
}

PipelineProgram without_stages(PipelineShape const& shape, std::span<StageOrder const> orders) {
  auto const some = [&](ChunkAct act) {
    return std::ranges::any_of(orders, [&](StageOrder const& order) {
      return std::ranges::find(order, act, &ChunkOperation::act) != order.end();
    });
  };
  return {.shape = shape, .splits_backward = some(ChunkAct::weights), .forward_only = !some(ChunkAct::backward)};
}

ChunkAct chunk_act(StageAct act) {
  if (act == StageAct::forward) return ChunkAct::forward;
  return act == StageAct::backward ? ChunkAct::backward : ChunkAct::weights;
}

} // namespace

std::string_view to_string(MessageKind kind) { return kind == MessageKind::activation ? "activation" : "gradient"; }

std::string to_string(StageInstruction const& instruction, Index chunks) {
  std::string const chunk = chunks > 1 ? fmt::format(", chunk {}", instruction.chunk) : "";
  if (computes(instruction.act))
    return fmt::format("{} {}{}, slot {}", verb(instruction.act), instruction.micro_batch, chunk, instruction.slot);
  return fmt::format("{} {} {}{}{}", verb(instruction.act), to_string(instruction.kind), instruction.micro_batch, chunk,
                     buffer_text(instruction));
}

PipelineProgram make_pipeline_program(PipelineShape const& shape, std::vector<StageOrder> const& orders,
                                      MessagePolicy const& policy) {
  TRAINSTONE_REQUIRE(std::ssize(orders) == shape.stages, "{} orders for {} stages", orders.size(), shape.stages);
  PipelineProgram program = without_stages(shape, orders);
  for (Index stage = 0; stage < shape.stages; ++stage)
    program.stages.push_back(StageWriter(program, stage, orders[static_cast<std::size_t>(stage)], policy).write());
  return program;
}

StageProgram make_stage_program(PipelineShape const& shape, Index stage, StageOrder const& order,
                                MessagePolicy const& policy) {
  return StageWriter(without_stages(shape, {&order, 1}), stage, order, policy).write();
}

std::vector<StageOrder> orders_of(PipelineProgram const& program) {
  std::vector<StageOrder> orders;
  for (StageProgram const& stage : program.stages) {
    StageOrder& order = orders.emplace_back();
    for (StageInstruction const& one : stage.instructions)
      if (computes(one.act)) order.push_back({chunk_act(one.act), one.micro_batch, one.chunk});
  }
  return orders;
}

} // namespace trainstone
