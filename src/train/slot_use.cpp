#include "train/slot_use.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

namespace trainstone {

/// Of its chunk.
bool SlotUse::is_of_first_part(Instruction const& instruction) const {
  return m_parts->chunk_parts(m_parts->chunk_of(instruction.subject)).begin == instruction.subject;
}

void SlotUse::begin(Instruction const& forward) {
  if (!is_of_first_part(forward) || !begins_pass(forward)) return;
  Index const slot = forward.buffers.slot;
  auto const [use, is_free] = m_uses.try_emplace(slot);
  TRAINSTONE_REQUIRE(is_free, "micro-batch {} takes slot {}, which is in use", forward.micro_batch, slot);
  use->second = Span(Lane::slot, [&] {
    bool const names_chunk = m_parts->chunks() > 1;
    std::string const chunk = names_chunk ? fmt::format(", chunk {}", m_parts->chunk_of(forward.subject)) : "";
    return fmt::format("slot {}: micro-batch {}{}", slot, forward.micro_batch, chunk);
  });
}

void SlotUse::end(Instruction const& backward) {
  if (!is_of_first_part(backward)) return;
  if (ends_pass(backward, *m_parts)) m_uses.erase(backward.buffers.slot);
}

} // namespace trainstone
