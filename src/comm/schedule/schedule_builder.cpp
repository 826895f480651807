#include "comm/schedule/schedule_builder.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

Group Group::of(std::vector<Rank> members, Rank rank) {
  auto const found = std::ranges::find(members, rank);
  TRAINSTONE_REQUIRE(found != members.end(), "rank {} is not a member of this group of {}", rank, members.size());
  auto const me = static_cast<Rank>(found - members.begin());
  auto const size = static_cast<Rank>(members.size());
  return Group(size, me, std::make_shared<std::vector<Rank> const>(std::move(members)));
}

Rank Group::operator[](Rank i) const {
  Rank const member = (i % m_size + m_size) % m_size;
  return m_members ? (*m_members)[static_cast<std::size_t>(member)] : member;
}

ScheduleBuilder::ScheduleBuilder(Problem const& problem, Algorithm algorithm, Rank rank)
    : m_schedule{.collective = problem.collective,
                 .algorithm = algorithm,
                 .rank = rank,
                 .ranks = problem.ranks(),
                 .elements = problem.elements(),
                 .scratch_elements = 0,
                 .rounds = {},
                 .neighbours = {}},
      m_neighbours(problem.shared_memory ? problem.topology.neighbours(rank) : std::vector<Rank>{}) {}

void ScheduleBuilder::send(Rank peer, Slice const& from) {
  if (!from.range.empty()) m_round.push_back(Move::send(peer, from));
}

void ScheduleBuilder::receive(Rank peer, Slice const& to) {
  if (!to.range.empty()) m_round.push_back(Move::receive(peer, to));
}

void ScheduleBuilder::reduce(Slice const& from, Slice const& to) {
  if (!to.range.empty()) m_round.push_back(Move::reduce(from, to));
}

void ScheduleBuilder::copy(Slice const& from, Slice const& to) {
  if (!to.range.empty()) m_round.push_back(Move::copy(from, to));
}

void ScheduleBuilder::push(Slice const& from, Slice const& to) {
  if (!to.range.empty()) m_round.push_back(Move::push(from, to));
}

void ScheduleBuilder::combine(Slice const& from, Slice const& to) {
  if (to.range.empty()) return;
  Index const read = from.range.size(), part = to.range.size();
  bool const whole = from.owner == every_neighbour ? read == part : read >= part && read % part == 0;
  TRAINSTONE_REQUIRE(whole, "{} elements are no parts of {} to be combined", read, part);
  m_round.push_back(Move::combine(from, to));
}

void ScheduleBuilder::send_signal(Rank peer) { m_round.push_back(Move::send(peer, {})); }

void ScheduleBuilder::receive_signal(Rank peer) { m_round.push_back(Move::receive(peer, {})); }

void ScheduleBuilder::end_round() {
  if (m_round.empty()) return;
  bool const shared = std::ranges::any_of(m_round, &Move::is_shared);
  if (shared) m_schedule.neighbours = m_neighbours;
  m_schedule.rounds.push_back(std::move(m_round));
  m_round.clear();
}

void ScheduleBuilder::node_barrier() {
  end_round();
  TRAINSTONE_REQUIRE(!m_neighbours.empty(), "a node barrier needs shared memory");
  m_schedule.neighbours = m_neighbours;
  m_schedule.rounds.push_back({Move::node_barrier()});
}

Range ScheduleBuilder::new_scratch(Index elements) {
  Range const range{m_scratch_used, m_scratch_used + elements};
  m_scratch_used = range.end;
  m_schedule.scratch_elements = std::max(m_schedule.scratch_elements, m_scratch_used);
  return range;
}

Schedule ScheduleBuilder::finish() {
  end_round();
  return std::move(m_schedule);
}

} // namespace trainstone
