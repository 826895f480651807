#include "train/stage_clock.hpp"

namespace trainstone {

void StageClock::begin() {
  auto const chunks = static_cast<std::size_t>(m_parts->chunks());
  m_times = {.forward = std::vector<double>(chunks, 0.0), .backward = std::vector<double>(chunks, 0.0)};
  m_begin = std::chrono::steady_clock::now();
}

void StageClock::add(Instruction const& instruction, double seconds) {
  if (!computes(instruction.act)) return;
  Index const chunk = instruction.act == Act::loss ? m_parts->chunks() - 1 : m_parts->chunk_of(instruction.subject);
  (is_forward(instruction) ? m_times.forward : m_times.backward)[static_cast<std::size_t>(chunk)] += seconds;
  if (instruction.act == Act::backward) m_times.until_end = seconds_since(m_begin);
}

bool StageClock::is_forward(Instruction const& instruction) const {
  if (instruction.act == Act::forward || instruction.act == Act::loss) return true;
  return instruction.act == Act::backward && (*m_parts)[instruction.subject].kind == PartKind::head;
}

} // namespace trainstone
