#include "comm/simulation/symbolic_run.hpp"

#include "comm/schedule/expected_results.hpp"
#include "comm/schedule/schedule_text.hpp"
#include "comm/simulation/simulator_checks.hpp"

#include <fmt/format.h>

namespace trainstone::Impl {

namespace {

void merge(std::vector<bool>& into, std::vector<bool> const& from) {
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i]) into[i] = true;
}

} // namespace

SymbolicRun::SymbolicRun(Problem const& problem, std::vector<Schedule> const& schedules,
                         std::function<void(Write const&)> on_write)
    : m_schedules(schedules), m_on_write(std::move(on_write)), m_trees(problem.ranks()) {
  bool const signals = !has_data(problem.collective);
  m_ranks.reserve(schedules.size());
  for (Schedule const& schedule : schedules) {
    std::vector<bool> nobody(signals ? schedules.size() : 0, false);
    m_ranks.push_back({SymbolicBuffer(schedule.elements), SymbolicBuffer(schedule.scratch_elements),
                       SymbolicBuffer(mailbox_elements), 0, nobody, nobody});
    if (signals) m_ranks.back().heard[static_cast<std::size_t>(schedule.rank)] = true;
    Range const held = initially_held(problem, schedule.rank);
    m_ranks.back().data.write(held, {{held.size(), held.begin, schedule.rank}});
  }
}

void SymbolicRun::begin_round(Rank rank, Round const& round) {
  for (std::size_t i = 0; i < early_moves(round); ++i) run_local_move(rank, round[i]);
}

void SymbolicRun::deliver(Posted const& send, Posted const& receive) {
  if (send.move->size() != receive.move->size()) {
    return report(finding(Defect::length_mismatch, receive.rank, receive.round,
                          fmt::format("{} gets the {} from round {} of rank {}", describe(*receive.move),
                                      describe(*send.move), send.round, send.rank)));
  }
  // the sender is still in its round: it has heard no more than when it posted
  merge(state(receive.rank).heard_in_round, state(send.rank).heard);
  Slice const& from = send.move->from;
  if (from.range.empty()) return;
  write(receive.rank, receive.move->to, read(send.rank, send.round, *send.move, send.rank, from.buffer, from.range));
}

void SymbolicRun::pass_barrier(std::vector<Rank> const& neighbours) {
  std::vector<bool> heard(state(neighbours.front()).heard.size(), false);
  for (Rank const neighbour : neighbours) merge(heard, state(neighbour).heard);
  for (Rank const neighbour : neighbours) state(neighbour).heard = heard;
}

void SymbolicRun::end_round(Rank rank, Round const& round) {
  for (std::size_t i = early_moves(round); i < round.size(); ++i)
    if (round[i].is_local()) run_local_move(rank, round[i]);
  merge(state(rank).heard, state(rank).heard_in_round);
  ++state(rank).round;
}

bool SymbolicRun::has_heard(Rank rank, Rank other) const {
  return m_ranks[static_cast<std::size_t>(rank)].heard[static_cast<std::size_t>(other)];
}

SymbolicBuffer& SymbolicRun::buffer(Rank owner, BufferId buffer) {
  State& of_owner = state(owner);
  switch (buffer) {
  case BufferId::data: return of_owner.data;
  case BufferId::scratch: return of_owner.scratch;
  case BufferId::mailbox: break;
  }
  return of_owner.mailbox;
}

std::vector<Rank> SymbolicRun::owners(Rank rank, Slice const& slice) const {
  if (slice.owner == every_neighbour) return m_schedules[static_cast<std::size_t>(rank)].neighbours;
  return {slice.owner == own_memory ? rank : slice.owner};
}

void SymbolicRun::run_local_move(Rank rank, Move const& move) {
  if (!move.is_local()) return;
  std::size_t const round = state(rank).round;
  if (move.action == Action::combine) return write(rank, move.to, sum_of_parts(rank, move));
  Pieces const from = read(rank, round, move, owners(rank, move.from).front(), move.from.buffer, move.from.range);
  if (move.copies()) return write(rank, move.to, from);
  Pieces const to = read(rank, round, move, owners(rank, move.to).front(), move.to.buffer, move.to.range);
  Pieces const total = sum(m_trees, to, from);
  if (!all_defined(total))
    report(finding(Defect::mixed_elements, rank, round, describe(move) + " adds up different elements"));
  write(rank, move.to, total);
}

Pieces SymbolicRun::sum_of_parts(Rank rank, Move const& combine) {
  std::size_t const round = state(rank).round;
  std::vector<Pieces> parts;
  Range const& from = combine.from.range;
  Index const size = combine.to.range.size();
  for (Rank const owner : owners(rank, combine.from)) {
    for (Index begin = from.begin; begin < from.end; begin += size)
      parts.push_back(read(rank, round, combine, owner, combine.from.buffer, {begin, begin + size}));
  }
  Pieces total = balanced_sum(m_trees, std::move(parts));
  if (!all_defined(total))
    report(finding(Defect::mixed_elements, rank, round, describe(combine) + " adds up different elements"));
  return total;
}

Pieces SymbolicRun::read(Rank rank, std::size_t round, Move const& move, Rank owner, BufferId buffer_id,
                         Range const& range) {
  Pieces pieces = buffer(owner, buffer_id).read(range);
  Index element = range.begin;
  for (Piece const& piece : pieces) {
    if (!piece.defined()) {
      report(finding(Defect::undefined_read, rank, round,
                     fmt::format("{} reads element {} of rank {}'s {}, which nothing has written", describe(move),
                                 element, owner, to_string(buffer_id))));
    }
    element += piece.size;
  }
  return pieces;
}

void SymbolicRun::write(Rank rank, Slice const& slice, Pieces const& pieces) {
  for (Rank const owner : owners(rank, slice)) {
    buffer(owner, slice.buffer).write(slice.range, pieces);
    if (m_on_write) m_on_write({owner, slice.buffer, slice.range, pieces});
  }
}

void SymbolicRun::report(Finding const& found) {
  if (!m_finding) m_finding = found;
}

} // namespace trainstone::Impl
