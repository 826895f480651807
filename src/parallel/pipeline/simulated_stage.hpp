#pragma once

// What a stage has in its slots and buffers while the proof plays its program. Owns the rules that concern one stage
// alone. Part of pipeline_proof.hpp.

#include "parallel/pipeline/pipeline_proof.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trainstone::Impl {

/// Ends the play. The message lacks stage and instruction.
struct FoundPipelineDefect {
  PipelineDefect defect;
  std::string message;
};

class SimulatedStage {
public:
  SimulatedStage(PipelineProgram const& program, Index stage);

  /// Throws unless the instruction names what exists.
  void require_well_formed(StageInstruction const& one) const;

  void receive(StageInstruction const& one);
  void require_receiving(StageInstruction const& one) const;
  void wait_receive(StageInstruction const& one);
  void send(StageInstruction const& one);
  void require_sending(StageInstruction const& one) const;
  void wait_send(StageInstruction const& one);
  void forward(StageInstruction const& one);
  void backward(StageInstruction const& one);
  void weights(StageInstruction const& one);

  /// At the end of the program.
  void require_complete() const;
  Index slots_in_use() const { return m_slots.used; }

private:
  using Work = std::pair<Index, Index>; // micro-batch, chunk

  enum class Use { free, receiving, arrived, made, sending };
  struct Buffer {
    Use use = Use::free;
    Work work = {};
  };
  /// Slots or buffers of one kind.
  struct Pool {
    char const* name;
    std::vector<Buffer> buffers = {};
    Index used = 0;
    Index peak = 0;
  };
  enum class Done { nothing, forward, backward, weights };

  bool receives_input(StageInstruction const& one) const;
  void require_input(StageInstruction const& one);
  static Work work_of(StageInstruction const& one) { return {one.micro_batch, one.chunk}; }
  static Buffer& at(Pool& pool, Index number);
  static void take(Pool& pool, Index number, Use use, Work const& work);
  static void release(Pool& pool, Index number);
  static void require_has(Pool& pool, Index number, Use use, Work const& work);
  Pool& pool_of(StageInstruction const& one, bool received, Index& number);
  Done done(Work const& work) const;
  void complete(Work const& work);
  void release_chunk(StageInstruction const& one);
  void require_done_all() const;

  PipelineProgram const& m_program;
  Index m_stage;
  bool m_splits;
  Pool m_slots{"slot"}, m_inputs{"input"}, m_gradients{"gradient"};
  std::map<Work, Done> m_done;
  std::map<std::pair<MessageKind, Work>, bool> m_received, m_sent; ///< whether a wait has followed
  std::map<Index, std::vector<Index>> m_completed;                 ///< by chunk: micro-batches, in order
};

} // namespace trainstone::Impl
