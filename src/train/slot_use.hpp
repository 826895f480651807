#pragma once

// Which slots of activations are in use while a stage plays a training step. A slot is in use from a chunk's first
// forward to its last backward. Counts what is played, whatever was planned. Each use of a slot is an event of the
// trace.

#include "core/timeline.hpp"
#include "model/part.hpp"
#include "parallel/program/instruction.hpp"

#include <map>

namespace trainstone {

class SlotUse {
public:
  /// \param[in] parts  of this stage; must outlive the object
  explicit SlotUse(PartTable const& parts) : m_parts(&parts) {}

  /// A part's forward begins. \throws Error if it takes a slot that is in use
  void begin(Instruction const& forward);
  /// A part's backward, or a piece of it, has ended.
  void end(Instruction const& backward);
  /// A step begins: whatever an interrupted step has left is over.
  void clear() { m_uses.clear(); }

  /// Slots that are in use.
  Index count() const { return std::ssize(m_uses); }

private:
  bool is_of_first_part(Instruction const& instruction) const;

  PartTable const* m_parts;
  std::map<Index, Span> m_uses; ///< by slot
};

} // namespace trainstone
