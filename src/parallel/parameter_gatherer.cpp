#include "parallel/parameter_gatherer.hpp"

#include "kernels/accumulate.hpp"

#include <algorithm>
#include <utility>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

} // namespace

ParameterGatherer::ParameterGatherer(ExecutionSpace const& exec, MeshCommunicators& communicators,
                                     ExecutionQueue& queue, ShardPlan const& plan, StateMemory& parameters,
                                     StateMemory* slots, std::vector<StoredVector> const& scratch)
    : m_exec(exec),
      m_queue(&queue),
      m_plan(&plan),
      m_parameters(&parameters),
      m_slots(slots),
      m_slots_in_turn(at(plan.prefetch) + 1) {
  for (Index group = 0; group < std::ssize(plan.groups); ++group) {
    if (!plan.gathers[at(group)]) continue;
    PlannedCollective const& planned = *plan.gathers[at(group)];
    Schedule const schedule = schedule_of(planned, plan.mesh, plan.rank);
    for (std::size_t slot = 0; slot < m_slots_in_turn; ++slot)
      m_gathers.emplace_back(m_exec, communicators.of(planned.axis), schedule, Operation::sum, whole(group, slot),
                             scratch[slot],
                             ExecutionOptions{.segment = m_slots ? m_slots->segment() : m_parameters->segment()});
  }
}

StoredVector ParameterGatherer::share(Index group) const {
  return m_parameters->part(m_plan->share_begin(group, m_plan->sharding.parameters), m_plan->share(group).size());
}

StoredVector ParameterGatherer::whole(Index group, std::size_t slot) const {
  ParameterGroup const& entry = m_plan->groups[at(group)];
  if (!m_slots) return m_parameters->part(entry.offset, entry.padded);
  return m_slots->part(static_cast<Index>(slot) * m_plan->largest_group(), entry.padded);
}

Execution& ParameterGatherer::gather(std::size_t place) {
  return m_gathers[at(m_sequence[place]) * m_slots_in_turn + slot_of(place)];
}

void ParameterGatherer::begin(std::vector<Index> sequence) {
  TRAINSTONE_REQUIRE(m_acquired == m_started, "{} gathers of the last sequence are still under way",
                     m_started - m_acquired);
  m_sequence = std::move(sequence);
  m_started = m_acquired = 0;
  if (m_plan->overlap) start_up_to(m_slots_in_turn);
}

void ParameterGatherer::start_up_to(std::size_t end) {
  for (; m_started < std::min(end, m_sequence.size()); ++m_started) {
    if (m_gathers.empty()) continue;
    Index const group = m_sequence[m_started];
    Range const share = m_plan->share(group);
    if (m_slots && !share.empty()) {
      StoredVector const room = whole(group, slot_of(m_started)).part(share.begin, share.size());
      accumulate(m_exec, Write::overwrite, this->share(group), room);
    }
    m_queue->start(gather(m_started));
  }
}

ConstStoredVector ParameterGatherer::acquire(std::size_t place) {
  TRAINSTONE_REQUIRE(place < m_sequence.size(), "place {} of {}", place, m_sequence.size());
  for (; m_acquired <= place; ++m_acquired) {
    start_up_to(m_acquired + 1);
    if (!m_gathers.empty()) m_queue->wait(gather(m_acquired));
  }
  // what was used before this place is not any more: its slot is free
  if (m_plan->overlap) start_up_to(place + m_slots_in_turn);
  return whole(m_sequence[place], slot_of(place));
}

void ParameterGatherer::finish() {
  if (!is_finished()) acquire(m_sequence.size() - 1);
}

} // namespace trainstone
