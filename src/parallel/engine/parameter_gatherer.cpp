#include "parallel/engine/parameter_gatherer.hpp"

#include "kernels/accumulate.hpp"

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

} // namespace

ParameterGatherer::ParameterGatherer(ExecutionSpace const& exec, ExecutionSpace const& communication,
                                     MeshCommunicators& communicators, ExecutionQueue& queue, GatherPlan const& gathers,
                                     StateLayout const& layout, ParameterShares& parameters, StateMemory* slots,
                                     std::vector<StoredVector> const& scratch,
                                     std::vector<std::span<std::byte>> const& staging)
    : m_exec(exec),
      m_queue(&queue),
      m_plan(&gathers),
      m_layout(&layout),
      m_parameters(&parameters),
      m_slots(slots),
      m_published(layout.units.size()) {
  for (Index unit = 0; unit < std::ssize(layout.units); ++unit) {
    m_first.push_back(m_gathers.size());
    for (Index slot = 0; slot < m_plan->in_flight(); ++slot) {
      if (m_plan->by_priority && slot != unit) continue;
      std::size_t staged = 0;
      for (auto const& [planned, pieces] : gathers.of_unit[at(unit)]) {
        Schedule const schedule = schedule_of(planned, layout.mesh, layout.rank);
        m_gathers.emplace_back(
            communication, communicators.of(planned.axis), schedule, Operation::sum, whole(unit, slot),
            scratch[at(slot)],
            ExecutionOptions{.segment = m_slots ? m_slots->segment() : m_parameters->segment(),
                             .pieces = pieces,
                             .staging = staging[at(slot)].subspan(staged), // and uses the begin of it
                             .caller = &m_exec,
                             .any_order = m_plan->by_priority});
        staged +=
            staging_bytes(communicators.of(planned.axis).buffers(), schedule, bytes_per_value(layout.types.parameters));
      }
    }
  }
  m_first.push_back(m_gathers.size());
}

StoredVector ParameterGatherer::whole(Index unit, Index slot) const {
  ParameterUnit const& entry = m_layout->units[at(unit)];
  if (m_layout->serves()) { // its shares of the unit's groups lie side by side
    Index const begin = m_layout->share_offset(entry.first_group);
    Index const end = m_layout->share_offset(entry.last_group) + m_layout->share(entry.last_group).size();
    return m_parameters->part(begin, end - begin);
  }
  if (!m_slots) return m_parameters->part(entry.offset, entry.padded);
  return m_slots->part(slot * m_layout->largest_unit(), entry.padded);
}

StoredVector ParameterGatherer::whole_group(Index group, Index slot) const {
  ParameterGroup const& entry = m_layout->groups[at(group)];
  Index const unit = m_layout->unit_of(group);
  return whole(unit, slot).part(entry.offset - m_layout->units[at(unit)].offset, entry.padded);
}

std::span<Execution> ParameterGatherer::executions(Index unit, Index slot) {
  std::size_t const count = m_plan->of_unit[at(unit)].size();
  return std::span(m_gathers).subspan(m_first[at(unit)] + (m_plan->by_priority ? 0 : at(slot) * count), count);
}

void ParameterGatherer::wait(Index unit, Index slot) {
  for (Execution const& one : executions(unit, slot)) m_queue->wait(one);
}

void ParameterGatherer::gather(Index unit, Index slot) {
  ParameterUnit const& entry = m_layout->units[at(unit)];
  for (Index group = entry.first_group; group <= entry.last_group; ++group)
    if (Range const share = m_layout->share(group); !share.empty())
      accumulate(m_exec, Write::overwrite, m_parameters->taken(group),
                 whole_group(group, slot).part(share.begin, share.size()));
  m_parameters->release(unit);
  for (Execution& one : executions(unit, slot)) m_queue->start(one);
}

void ParameterGatherer::outdate() {
  if (!m_plan->after_update) return;
  for (Index unit = 0; unit < std::ssize(m_published); ++unit) outdate(unit);
}

void ParameterGatherer::outdate(Index unit) {
  Published& published = m_published[at(unit)];
  TRAINSTONE_REQUIRE(published.state != Publication::under_way, "parameters change while they are published");
  published.state = Publication::old;
}

void ParameterGatherer::publish(Index unit, Index slot) {
  Published& published = m_published[at(unit)];
  if (published.state != Publication::old) return;
  for (Published const& other : m_published)
    TRAINSTONE_REQUIRE(other.state != Publication::under_way || other.slot != slot, "scratch {} is in use", slot);
  published = {Publication::under_way, slot};
  bool const in_turn = m_plan->by_priority && m_layout->serves();
  for (Execution& one : executions(unit, slot))
    if (in_turn)
      m_queue->start_in_turn(one, InstanceEvent(m_exec), std::distance(m_gathers.data(), &one));
    else
      m_queue->start(one);
}

void ParameterGatherer::wait_published(Index unit) {
  Published& published = m_published[at(unit)];
  if (published.state == Publication::complete) return;
  TRAINSTONE_REQUIRE(published.state == Publication::under_way, "unit {} was not published", unit);
  wait(unit, published.slot);
  published.state = Publication::complete;
}

void ParameterGatherer::finish() {
  // These use scratch in the order of use. A stage without the embedding uses its first unit last.
  for (Index unit = 0; unit < std::ssize(m_layout->units); ++unit)
    if (m_published[at(unit)].state == Publication::under_way) wait_published(unit);
  for (Index unit = 0; unit < std::ssize(m_layout->units); ++unit) {
    publish(unit, unit % m_plan->in_flight());
    wait_published(unit);
  }
}

} // namespace trainstone
