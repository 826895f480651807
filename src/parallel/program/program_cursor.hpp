#pragma once

// A place in the short training that the simulator of steps plays.

#include "parallel/program/instruction.hpp"

#include <array>
#include <cstddef>
#include <vector>

namespace trainstone::Impl {

/// The sections of programs that the simulator plays, in order. After the last but one step the update is skipped.
enum class Section { step, update, evaluation };
inline constexpr std::array played{Section::step,   Section::update,     Section::step,
                                   Section::update, Section::evaluation, Section::step,
                                   Section::step,   Section::update,     Section::evaluation};

inline std::vector<Segment> const& segments_of(StepProgram const& program, Section section) {
  switch (section) {
  case Section::step: return program.step;
  case Section::update: return program.update;
  case Section::evaluation: return program.evaluation;
  }
  return program.step;
}

/// A place in the list of instructions that a rank plays.
class Cursor {
public:
  explicit Cursor(StepProgram const& program) : m_program(&program) { skip_empty(); }

  bool is_at_end() const { return m_section == played.size(); }
  Section section() const { return played[m_section]; }
  Instruction instruction() const { return later(segment().instructions[m_next], m_time); }
  /// \return whether this was the last instruction of a section
  bool advance() {
    ++m_next;
    std::size_t const before = m_section;
    skip_empty();
    return m_section != before;
  }

private:
  Segment const& segment() const { return segments_of(*m_program, played[m_section])[m_segment]; }

  void skip_empty() {
    for (; m_section < played.size(); ++m_section, m_segment = 0) {
      for (; m_segment < segments_of(*m_program, played[m_section]).size(); ++m_segment, m_time = 0)
        for (; m_time < segment().times; ++m_time, m_next = 0)
          if (m_next < segment().instructions.size()) return;
    }
  }

  StepProgram const* m_program;
  std::size_t m_section = 0, m_segment = 0, m_next = 0;
  Index m_time = 0;
};

} // namespace trainstone::Impl
