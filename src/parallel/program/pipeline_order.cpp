#include "parallel/program/pipeline_order.hpp"

#include "core/error.hpp"

namespace trainstone {

namespace {

class Translation {
public:
  Translation(PipelinePlan const& pipeline, PartTable const& parts, bool trains)
      : m_pipeline(pipeline), m_parts(parts), m_trains(trains) {}

  void add(StageInstruction const& one) {
    switch (one.act) {
    case StageAct::receive: return m_order.push_back(message(Act::receive, one));
    case StageAct::send: return m_order.push_back(message(Act::send, one));
    case StageAct::wait_receive: return wait(Act::receive, one);
    case StageAct::wait_send: return wait(Act::send, one);
    case StageAct::forward: return forward(one);
    case StageAct::backward: return backward(one);
    case StageAct::weights: throw Error("a part computes the gradients of its input and its parameters together");
    }
  }

  Instructions take() { return std::move(m_order); }

private:
  static Instruction message(Act act, StageInstruction const& one) {
    return {.act = act,
            .subject = static_cast<Index>(one.kind),
            .micro_batch = one.micro_batch,
            .piece = one.chunk,
            .buffers = buffers_of(one)};
  }

  void wait(Act act, StageInstruction const& one) {
    Instruction instruction = message(Act::wait, one);
    instruction.started = act;
    m_order.push_back(instruction);
  }

  void add(Act act, Index part, StageInstruction const& one) {
    m_order.push_back({.act = act, .subject = part, .micro_batch = one.micro_batch, .buffers = buffers_of(one)});
  }

  void forward(StageInstruction const& one) {
    Range const parts = m_parts.chunk_parts(one.chunk);
    for (Index part = parts.begin; part < parts.end; ++part) add(Act::forward, part, one);
    if (m_pipeline.shape.is_last(m_pipeline.stage, one.chunk))
      append_turn(m_order, m_parts, one.micro_batch, m_trains, buffers_of(one));
  }

  void backward(StageInstruction const& one) {
    Range const parts = m_parts.chunk_parts(one.chunk);
    bool const has_turned = m_pipeline.shape.is_last(m_pipeline.stage, one.chunk);
    for (Index part = parts.end - (has_turned ? 1 : 0); part-- > parts.begin;) add(Act::backward, part, one);
  }

  PipelinePlan const& m_pipeline;
  PartTable const& m_parts;
  bool m_trains;
  Instructions m_order;
};

} // namespace

Instructions pipeline_order(StageProgram const& program, PipelinePlan const& pipeline, PartTable const& parts,
                            bool trains) {
  Translation translation(pipeline, parts, trains);
  for (StageInstruction const& one : program.instructions) translation.add(one);
  return translation.take();
}

} // namespace trainstone
