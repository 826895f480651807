#pragma once

// The time of one step on a stage of a pipeline: what its chunks compute, and when its last backward ends. Adds up what
// the trainer reports. Does not compare stages (parallel/pipeline/pipeline_bubble.hpp).

#include "core/clock.hpp"
#include "model/part.hpp"
#include "parallel/pipeline/pipeline_bubble.hpp"
#include "parallel/program/instruction.hpp"

namespace trainstone {

class StageClock {
public:
  /// \param[in] parts  of this stage; must outlive the object
  explicit StageClock(PartTable const& parts) : m_parts(&parts) {}

  /// A step begins: all stages are here.
  void begin();
  /// An instruction has just ended, and took so many seconds. Only forward, recompute, loss and backward count. Head's
  /// backward belongs to the forward of the last chunk, which turns round in the head.
  void add(Instruction const& instruction, double seconds);

  /// Of the step that has begun last.
  StageTimes const& times() const { return m_times; }

private:
  bool is_forward(Instruction const& instruction) const;

  PartTable const* m_parts;
  SteadyTime m_begin = {};
  StageTimes m_times;
};

} // namespace trainstone
