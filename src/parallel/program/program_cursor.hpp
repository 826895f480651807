#pragma once

// A place in the short training that the simulator of steps plays.

#include "parallel/program/instruction.hpp"

#include <array>
#include <cstddef>
#include <vector>

namespace trainstone::Impl {

/// The parts of programs that the simulator plays, in order. After the last but one step the update is skipped.
enum class Part { step, update, evaluation };
inline constexpr std::array played{Part::step, Part::update, Part::step,   Part::update,    Part::evaluation,
                                   Part::step, Part::step,   Part::update, Part::evaluation};

inline std::vector<Segment> const& segments_of(StepProgram const& program, Part part) {
  switch (part) {
  case Part::step: return program.step;
  case Part::update: return program.update;
  case Part::evaluation: return program.evaluation;
  }
  return program.step;
}

/// A place in the list of instructions that a rank plays.
class Cursor {
public:
  explicit Cursor(StepProgram const& program) : m_program(&program) { skip_empty(); }

  bool is_at_end() const { return m_part == played.size(); }
  Part part() const { return played[m_part]; }
  Instruction instruction() const { return later(segment().instructions[m_next], m_time); }
  /// \return whether this was the last instruction of a part
  bool advance() {
    ++m_next;
    std::size_t const before = m_part;
    skip_empty();
    return m_part != before;
  }

private:
  Segment const& segment() const { return segments_of(*m_program, played[m_part])[m_segment]; }

  void skip_empty() {
    for (; m_part < played.size(); ++m_part, m_segment = 0) {
      for (; m_segment < segments_of(*m_program, played[m_part]).size(); ++m_segment, m_time = 0)
        for (; m_time < segment().times; ++m_time, m_next = 0)
          if (m_next < segment().instructions.size()) return;
    }
  }

  StepProgram const* m_program;
  std::size_t m_part = 0, m_segment = 0, m_next = 0;
  Index m_time = 0;
};

} // namespace trainstone::Impl
