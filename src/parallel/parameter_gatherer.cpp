#include "parallel/parameter_gatherer.hpp"

#include "kernels/accumulate.hpp"

#include <utility>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

} // namespace

ParameterGatherer::ParameterGatherer(ExecutionSpace const& exec, ExecutionSpace const& communication,
                                     MeshCommunicators& communicators, ExecutionQueue& queue, ShardPlan const& plan,
                                     StateMemory& parameters, StateMemory* slots,
                                     std::vector<StoredVector> const& scratch,
                                     std::vector<std::span<std::byte>> const& staging)
    : m_exec(exec),
      m_queue(&queue),
      m_plan(&plan),
      m_parameters(&parameters),
      m_slots(slots),
      m_slots_in_turn(at(plan.prefetch) + 1),
      m_order(plan) {
  for (Index group = 0; group < std::ssize(plan.groups); ++group) {
    if (!plan.gathers[at(group)]) continue;
    PlannedCollective const& planned = *plan.gathers[at(group)];
    Schedule const schedule = schedule_of(planned, plan.mesh, plan.rank);
    for (std::size_t slot = 0; slot < m_slots_in_turn; ++slot)
      m_gathers.emplace_back(communication, communicators.of(planned.axis), schedule, Operation::sum,
                             whole(group, slot), scratch[slot],
                             ExecutionOptions{.segment = m_slots ? m_slots->segment() : m_parameters->segment(),
                                              .staging = staging[slot],
                                              .caller = &m_exec});
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

void ParameterGatherer::begin(std::vector<Index> sequence) { carry_out(m_order.begin(std::move(sequence))); }

void ParameterGatherer::carry_out(std::vector<GatherAction> const& actions) {
  if (m_gathers.empty()) return;
  for (GatherAction const& action : actions) {
    Index const group = m_order.group(action.place);
    std::size_t const slot = m_order.slot(action.place);
    Execution& gather = m_gathers[at(group) * m_slots_in_turn + slot];
    if (action.kind == GatherAction::Kind::wait) {
      m_queue->wait(gather);
      continue;
    }
    Range const share = m_plan->share(group);
    if (m_slots && !share.empty()) {
      StoredVector const room = whole(group, slot).part(share.begin, share.size());
      accumulate(m_exec, Write::overwrite, this->share(group), room);
    }
    m_queue->start(gather);
  }
}

ConstStoredVector ParameterGatherer::acquire(std::size_t place) {
  carry_out(m_order.acquire(place));
  return whole(m_order.group(place), m_order.slot(place));
}

void ParameterGatherer::finish() {
  if (!is_finished()) acquire(m_order.sequence().size() - 1);
}

} // namespace trainstone
