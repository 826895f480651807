#include "parallel/engine/parameter_gatherer.hpp"

#include "kernels/accumulate.hpp"

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

} // namespace

ParameterGatherer::ParameterGatherer(ExecutionSpace const& exec, ExecutionSpace const& communication,
                                     MeshCommunicators& communicators, ExecutionQueue& queue, GatherPlan const& gathers,
                                     StateLayout const& layout, StateMemory& parameters, StateMemory* slots,
                                     std::vector<StoredVector> const& scratch,
                                     std::vector<std::span<std::byte>> const& staging)
    : m_exec(exec),
      m_queue(&queue),
      m_plan(&gathers),
      m_layout(&layout),
      m_parameters(&parameters),
      m_slots(slots),
      m_published(layout.groups.size()) {
  for (Index group = 0; group < std::ssize(layout.groups); ++group) {
    if (!gathers.of_group[at(group)]) continue;
    PlannedCollective const& planned = *gathers.of_group[at(group)];
    Schedule const schedule = schedule_of(planned, layout.mesh, layout.rank);
    for (Index slot = 0; slot < m_plan->in_flight(); ++slot)
      m_gathers.emplace_back(communication, communicators.of(planned.axis), schedule, Operation::sum,
                             whole(group, slot), scratch[at(slot)],
                             ExecutionOptions{.segment = m_slots ? m_slots->segment() : m_parameters->segment(),
                                              .staging = staging[at(slot)],
                                              .caller = &m_exec});
  }
}

StoredVector ParameterGatherer::share(Index group) const {
  return m_parameters->part(m_layout->share_begin(group, m_layout->sharding.parameters), m_layout->share(group).size());
}

StoredVector ParameterGatherer::whole(Index group, Index slot) const {
  ParameterGroup const& entry = m_layout->groups[at(group)];
  if (!m_slots) return m_parameters->part(entry.offset, entry.padded);
  return m_slots->part(slot * m_layout->largest_group(), entry.padded);
}

Execution& ParameterGatherer::execution(Index group, Index slot) {
  return m_gathers[at(group * m_plan->in_flight() + slot)];
}

void ParameterGatherer::gather(Index group, Index slot) {
  if (Range const share = m_layout->share(group); !share.empty())
    accumulate(m_exec, Write::overwrite, this->share(group), whole(group, slot).part(share.begin, share.size()));
  m_queue->start(execution(group, slot));
}

void ParameterGatherer::outdate() {
  if (!m_plan->after_update) return;
  for (Published& group : m_published) {
    TRAINSTONE_REQUIRE(group.state != Publication::under_way, "parameters change while they are published");
    group.state = Publication::old;
  }
}

void ParameterGatherer::publish(Index group, Index slot) {
  Published& published = m_published[at(group)];
  if (published.state != Publication::old) return;
  for (Published const& other : m_published)
    TRAINSTONE_REQUIRE(other.state != Publication::under_way || other.slot != slot, "scratch {} is in use", slot);
  published = {Publication::under_way, slot};
  m_queue->start(execution(group, slot));
}

void ParameterGatherer::wait_published(Index group) {
  Published& published = m_published[at(group)];
  if (published.state == Publication::complete) return;
  TRAINSTONE_REQUIRE(published.state == Publication::under_way, "group {} was not published", group);
  m_queue->wait(execution(group, published.slot));
  published.state = Publication::complete;
}

void ParameterGatherer::finish() {
  for (Index group = 0; group < std::ssize(m_layout->groups); ++group) {
    publish(group, group % m_plan->in_flight());
    wait_published(group);
  }
}

} // namespace trainstone
