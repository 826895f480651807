#include "parallel/pipeline/pipeline_proof.hpp"

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_channels.hpp"
#include "parallel/pipeline/simulated_stage.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

using Impl::FoundPipelineDefect;
using Impl::SimulatedStage;

/// A message by the chunk that reads it.
struct Posted {
  Index micro_batch;
  Index chunk;
};

class Play {
public:
  Play(PipelineProgram const& program, Sends sends)
      : m_program(program),
        m_blocking(sends == Sends::blocking),
        m_channels(program.shape.stages),
        m_next(program.stages.size(), 0),
        m_started(program.stages.size(), false),
        m_slots_in_use(program.stages.size()) {
    for (Index stage = 0; stage < program.shape.stages; ++stage) m_stages.emplace_back(program, stage);
  }

  std::optional<PipelineFinding> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (m_stage = 0; m_stage < m_program.shape.stages; ++m_stage) try {
          while (!at_end() && play_one()) moved = true;
        } catch (FoundPipelineDefect const& found) {
          return finding(found);
        }
    }
    for (m_stage = 0; m_stage < m_program.shape.stages; ++m_stage)
      if (!at_end()) return finding({PipelineDefect::waits_for_ever, waiting_text()});
    for (m_stage = 0; m_stage < m_program.shape.stages; ++m_stage) try {
        own().require_complete();
      } catch (FoundPipelineDefect const& found) {
        return finding(found);
      }
    return std::nullopt;
  }

  /// By stage and instruction, behind it.
  std::vector<std::vector<Index>> const& slots_in_use() const { return m_slots_in_use; }

private:
  std::size_t stage() const { return static_cast<std::size_t>(m_stage); }
  SimulatedStage& own() { return m_stages[stage()]; }
  std::vector<StageInstruction> const& instructions() const { return m_program.stages[stage()].instructions; }
  bool at_end() const { return m_next[stage()] == instructions().size(); }
  StageInstruction const& instruction() const { return instructions()[m_next[stage()]]; }

  PipelineFinding finding(FoundPipelineDefect const& found) const {
    std::string const where = at_end() ? fmt::format("stage {}", m_stage)
                                       : fmt::format("stage {}, instruction {} ({}):", m_stage, m_next[stage()],
                                                     to_string(instruction(), m_program.shape.chunks));
    return {found.defect, m_stage, fmt::format("{} {}", where, found.message)};
  }

  std::string waiting_text() const {
    bool const receiving = instruction().act == StageAct::wait_receive;
    StageNeighbours const neighbours{m_stage, m_program.shape.stages};
    Index const other = receiving ? neighbours.sender(instruction().kind) : neighbours.receiver(instruction().kind);
    auto const& theirs = m_program.stages[static_cast<std::size_t>(other)].instructions;
    std::size_t const place = m_next[static_cast<std::size_t>(other)];
    return fmt::format("waits for ever, stage {} does not {} it: it is at {}", other, receiving ? "send" : "receive",
                       place == theirs.size() ? "its end"
                                              : fmt::format("instruction {} ({})", place,
                                                            to_string(theirs[place], m_program.shape.chunks)));
  }

  /// \return whether the stage has gone on
  bool play_one() {
    StageInstruction const& one = instruction();
    own().require_well_formed(one);
    if (!execute(one)) return false;
    m_slots_in_use[stage()].push_back(own().slots_in_use());
    ++m_next[stage()];
    m_started[stage()] = false;
    return true;
  }

  bool execute(StageInstruction const& one) {
    switch (one.act) {
    case StageAct::forward: own().forward(one); return true;
    case StageAct::backward: own().backward(one); return true;
    case StageAct::weights: own().weights(one); return true;
    case StageAct::receive:
      own().receive(one);
      m_channels.received_by(one.kind, m_stage).push_back({one.micro_batch, one.chunk});
      return true;
    case StageAct::send: return send(one);
    case StageAct::wait_receive:
      own().require_receiving(one);
      if (!has_met(m_channels.received_by(one.kind, m_stage), m_channels.sent_to(one.kind, m_stage), one.micro_batch,
                   one.chunk))
        return false;
      own().wait_receive(one);
      return true;
    case StageAct::wait_send:
      own().require_sending(one);
      if (!is_received(one)) return false;
      own().wait_send(one);
      return true;
    }
    return true;
  }

  bool send(StageInstruction const& one) {
    if (!m_started[stage()]) {
      own().send(one);
      m_channels.sent_by(one.kind, m_stage)
          .push_back({one.micro_batch, Impl::reading_chunk(m_program.shape, one.kind, m_stage, one.chunk)});
      m_started[stage()] = true;
    }
    return !m_blocking || is_received(one);
  }

  bool is_received(StageInstruction const& one) {
    return has_met(m_channels.sent_by(one.kind, m_stage), m_channels.received_from(one.kind, m_stage), one.micro_batch,
                   Impl::reading_chunk(m_program.shape, one.kind, m_stage, one.chunk));
  }

  /// Whether the other end of a message has been posted. It must be of the same message.
  static bool has_met(std::vector<Posted> const& mine, std::vector<Posted> const& theirs, Index micro_batch,
                      Index chunk) {
    std::optional<std::size_t> const place = Impl::place_of(mine, micro_batch, chunk);
    if (!place || *place >= theirs.size()) return false;
    Posted const& other = theirs[*place];
    if (other.micro_batch != micro_batch || other.chunk != chunk)
      throw FoundPipelineDefect{PipelineDefect::other_message,
                                fmt::format("meets micro-batch {}, chunk {}: message {} of its channel",
                                            other.micro_batch, other.chunk, *place)};
    return true;
  }

  PipelineProgram const& m_program;
  bool m_blocking;
  Impl::PipelineChannels<Posted> m_channels;
  std::vector<SimulatedStage> m_stages;
  std::vector<std::size_t> m_next; ///< by stage: the instruction that it plays
  std::vector<bool> m_started;     ///< by stage: whether this is a send that has started
  std::vector<std::vector<Index>> m_slots_in_use;
  Index m_stage = 0;
};

} // namespace

std::string_view to_string(PipelineDefect defect) {
  switch (defect) {
  case PipelineDefect::malformed: return "malformed";
  case PipelineDefect::doubled: return "doubled";
  case PipelineDefect::missing: return "missing";
  case PipelineDefect::not_there: return "not there";
  case PipelineDefect::wrong_buffer: return "wrong buffer";
  case PipelineDefect::written_while_used: return "written while used";
  case PipelineDefect::other_message: return "other message";
  case PipelineDefect::waits_for_ever: return "waits for ever";
  case PipelineDefect::not_started: return "not started";
  case PipelineDefect::never_waited: return "never waited";
  case PipelineDefect::wrong_count: return "wrong count";
  case PipelineDefect::mixed_order: return "mixed order";
  }
  return "unknown";
}

std::optional<PipelineFinding> find_pipeline_defect(PipelineProgram const& program, Sends sends) {
  return Play(program, sends).run();
}

void require_proved(PipelineProgram const& program) { slots_in_use(program); }

std::vector<std::vector<Index>> slots_in_use(PipelineProgram const& program) {
  Play play(program, Sends::posted);
  std::optional<PipelineFinding> const found = play.run();
  TRAINSTONE_REQUIRE(!found, "the program of a pipeline is wrong: {}", found ? found->message : "");
  return play.slots_in_use();
}

} // namespace trainstone
