#include "comm/simulation/simulator_checks.hpp"

#include "comm/schedule/schedule_text.hpp"
#include "comm/simulation/memory_access.hpp"
#include "comm/simulation/playback.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace trainstone::Impl {

namespace {

// --- malformed -------------------------------------------------------------------------------------------

std::optional<Finding> find_foreign_schedule(Problem const& problem, std::vector<Schedule> const& schedules) {
  auto const malformed = [](std::size_t rank, std::string const& what) {
    return finding(Defect::malformed, static_cast<Rank>(rank), 0, what);
  };
  if (std::ssize(schedules) != problem.ranks())
    return malformed(0, fmt::format("{} schedules for {} ranks", schedules.size(), problem.ranks()));
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    Schedule const& schedule = schedules[i];
    auto const rank = static_cast<Rank>(i);
    if (schedule.rank != rank || schedule.ranks != problem.ranks()) {
      return malformed(i, fmt::format("this is the schedule of rank {} of {}, it should be that of rank {} of {}",
                                      schedule.rank, schedule.ranks, rank, problem.ranks()));
    }
    if (schedule.collective != problem.collective || schedule.elements != problem.elements()) {
      return malformed(i, fmt::format("{} on {} elements, it should be {} on {}", to_string(schedule.collective),
                                      schedule.elements, to_string(problem.collective), problem.elements()));
    }
    if (!schedule.needs_shared_memory()) continue;
    if (!problem.shared_memory) return malformed(i, "it needs shared memory, and there is none");
    if (schedule.neighbours != problem.topology.neighbours(rank)) {
      return malformed(i, fmt::format("its neighbours are {}, they should be {}", fmt::join(schedule.neighbours, ", "),
                                      fmt::join(problem.topology.neighbours(rank), ", ")));
    }
  }
  return {};
}

/// What is wrong with the moves of one schedule, each by itself.
class MoveCheck {
public:
  MoveCheck(std::vector<Schedule> const& schedules, Schedule const& schedule)
      : m_schedules(schedules), m_schedule(schedule) {}

  /// A complaint; null if there is none.
  char const* complaint(Round const& round, Move const& move) const {
    if (move.action == Action::node_barrier) {
      if (m_schedule.neighbours.empty()) return "the schedule names no neighbours";
      return round.size() == 1 ? nullptr : "a node barrier must be alone in its round";
    }
    bool const peer_exists = move.peer >= 0 && move.peer < m_schedule.ranks && move.peer != m_schedule.rank;
    if (move.is_message() && !peer_exists) return "there is no such peer";
    if (move.is_message()) {
      Slice const& slice = move.reads() ? move.from : move.to;
      if (slice.owner != own_memory) return "messages start and end in a rank's own memory";
      if (slice.buffer == BufferId::mailbox) return "messages start and end in data or scratch";
    }
    if (move.reads() && !owner_exists(move, move.from)) return "the source's owner is no neighbour";
    if (move.writes() && !owner_exists(move, move.to)) return "the target's owner is no neighbour";
    if (move.writes() && move.to.buffer == BufferId::mailbox && move.to.owner != own_memory)
      return "a mailbox is written by its owner alone";
    if (move.reads() && !is_inside(move, move.from)) return "source empty or outside its buffer";
    if (move.writes() && !is_inside(move, move.to)) return "target empty or outside its buffer";
    return move.is_local() && !lengths_agree(move) ? "lengths differ" : nullptr;
  }

private:
  bool owner_exists(Move const& move, Slice const& slice) const {
    if (slice.owner == own_memory) return true;
    if (slice.owner == every_neighbour) return move.action == Action::combine && m_schedule.needs_shared_memory();
    return std::ranges::binary_search(m_schedule.neighbours, slice.owner);
  }

  bool is_inside(Move const& move, Slice const& slice) const {
    bool const signal = !has_data(m_schedule.collective) && move.is_message();
    if (signal && slice.range.empty()) return true;
    if (slice.range.begin < 0 || slice.range.begin >= slice.range.end) return false;
    if (slice.buffer == BufferId::data) return slice.range.end <= m_schedule.elements;
    if (slice.buffer == BufferId::mailbox)
      return m_schedule.needs_shared_memory() && slice.range.end <= mailbox_elements;
    auto const fits = [&](Rank owner) {
      return slice.range.end <= m_schedules[static_cast<std::size_t>(owner)].scratch_elements;
    };
    if (slice.owner == every_neighbour) return std::ranges::all_of(m_schedule.neighbours, fits);
    return fits(slice.owner == own_memory ? m_schedule.rank : slice.owner);
  }

  static bool lengths_agree(Move const& move) {
    Index const from = move.from.range.size();
    Index const to = move.to.range.size();
    bool const parts_in_a_row = move.action == Action::combine && move.from.owner != every_neighbour;
    return parts_in_a_row ? from % to == 0 : from == to;
  }

  std::vector<Schedule> const& m_schedules;
  Schedule const& m_schedule;
};

// --- races -----------------------------------------------------------------------------------------------

/// A local move reads all of its source while it writes its target; a combine may write onto one of its parts.
bool overlaps_itself(Schedule const& schedule, Move const& move) {
  if (!move.is_local()) return false;
  std::vector<MemoryAccess> reads, writes, both;
  append_accesses(schedule, 0, move, 0, both);
  std::ranges::partition_copy(both, std::back_inserter(writes), std::back_inserter(reads), &MemoryAccess::writes);
  Index const part = move.to.range.size();
  return std::ranges::any_of(reads, [&](MemoryAccess const& read) {
    return std::ranges::any_of(writes, [&](MemoryAccess const& write) {
      bool const overlap = read.owner == write.owner && read.buffer == write.buffer && read.range.overlaps(write.range);
      bool const onto_a_part = move.action == Action::combine && write.range.begin >= read.range.begin &&
                               write.range.end <= read.range.end && (write.range.begin - read.range.begin) % part == 0;
      return overlap && !onto_a_part;
    });
  });
}

std::string described(MemoryAccess const& access) {
  return fmt::format("rank {}, round {}: {}", access.rank, access.round, describe(*access.move));
}

/// All that one rank does to memory, cut at its node barriers.
std::vector<std::vector<MemoryAccess>> accesses_between_barriers(Schedule const& schedule) {
  std::vector<std::vector<MemoryAccess>> accesses(1);
  for (std::size_t i = 0; i < schedule.rounds.size(); ++i) {
    for (Move const& move : schedule.rounds[i]) {
      if (move.action == Action::node_barrier) accesses.emplace_back();
      append_accesses(schedule, i, move, static_cast<std::size_t>(schedule.rank), accesses.back());
    }
  }
  return accesses;
}

/// Before a rank's first node barrier and after its last one the data of others may not be touched; what a mailbox
/// holds stays there after the last one.
std::optional<Finding> find_unguarded(Rank rank, std::vector<std::vector<MemoryAccess>> const& accesses) {
  for (std::size_t const part : {std::size_t{0}, accesses.size() - 1}) {
    for (MemoryAccess const& access : accesses[part]) {
      bool const stays = access.buffer == BufferId::mailbox && part > 0;
      if (access.owner == rank || stays) continue;
      return finding(Defect::read_while_written, rank, access.round,
                     fmt::format("{} touches memory of rank {} {}, where that rank may still write",
                                 describe(*access.move), access.owner,
                                 part == 0 ? "before the first node barrier" : "after the last node barrier"));
    }
  }
  return {};
}

std::optional<Finding> find_race_on_node(std::vector<Schedule> const& schedules, std::vector<Rank> const& members) {
  std::vector<std::vector<MemoryAccess>> together; // by node barriers passed
  for (Rank const rank : members) {
    auto const accesses = accesses_between_barriers(schedules[static_cast<std::size_t>(rank)]);
    if (auto found = find_unguarded(rank, accesses)) return found;
    together.resize(std::max(together.size(), accesses.size()));
    for (std::size_t part = 0; part < accesses.size(); ++part)
      together[part].insert(together[part].end(), accesses[part].begin(), accesses[part].end());
  }
  for (std::vector<MemoryAccess> const& accesses : together) {
    auto const conflict = find_conflict(accesses);
    if (!conflict) continue;
    auto const& [a, b] = *conflict;
    return finding(Defect::read_while_written, b.rank, b.round,
                   fmt::format("{} has no node barrier between itself and {}; both touch {} [{}, {}) of rank {}",
                               describe(*b.move), described(a), to_string(a.buffer),
                               std::max(a.range.begin, b.range.begin), std::min(a.range.end, b.range.end), a.owner));
  }
  return {};
}

} // namespace

Finding finding(Defect defect, Rank rank, std::size_t round, std::string const& what) {
  return {defect, rank, fmt::format("{}: rank {}, round {}: {}", to_string(defect), rank, round, what)};
}

std::optional<Finding> find_malformed(Problem const& problem, std::vector<Schedule> const& schedules) {
  if (auto found = find_foreign_schedule(problem, schedules)) return found;
  for (Schedule const& schedule : schedules) {
    MoveCheck const check(schedules, schedule);
    for (std::size_t i = 0; i < schedule.rounds.size(); ++i) {
      if (schedule.rounds[i].empty()) return finding(Defect::malformed, schedule.rank, i, "nothing is in it");
      for (Move const& move : schedule.rounds[i]) {
        char const* const complaint = check.complaint(schedule.rounds[i], move);
        if (!complaint) continue;
        return finding(Defect::malformed, schedule.rank, i, fmt::format("{}: {}", describe(move), complaint));
      }
    }
  }
  return {};
}

std::optional<Finding> find_race_in_round(Schedule const& schedule) {
  for (std::size_t i = 0; i < schedule.rounds.size(); ++i) {
    Round const& round = schedule.rounds[i];
    std::size_t const early = early_moves(round);
    std::vector<MemoryAccess> accesses;
    for (std::size_t m = 0; m < round.size(); ++m) {
      if (overlaps_itself(schedule, round[m]))
        return finding(Defect::read_while_written, schedule.rank, i, describe(round[m]) + " overlaps itself");
      // the early moves come one after the other: one sequence; every message is one of its own
      std::size_t const sequence = m < early ? round.size() : m;
      if (m < early || round[m].is_message()) append_accesses(schedule, i, round[m], sequence, accesses);
    }
    if (early == round.size()) continue; // no messages
    auto const conflict = find_conflict(accesses);
    if (!conflict) continue;
    return finding(Defect::read_while_written, schedule.rank, i,
                   fmt::format("{} and {} are under way together", describe(*conflict->first.move),
                               describe(*conflict->second.move)));
  }
  return {};
}

std::optional<Finding> find_race_between_neighbours(Problem const& problem, std::vector<Schedule> const& schedules) {
  for (int node = 0; node < problem.topology.nodes(); ++node) {
    std::vector<Rank> const& members = problem.topology.members(node);
    bool const shared = std::ranges::any_of(
        members, [&](Rank rank) { return schedules[static_cast<std::size_t>(rank)].needs_shared_memory(); });
    if (!shared) continue;
    if (auto found = find_race_on_node(schedules, members)) return found;
  }
  return {};
}

} // namespace trainstone::Impl
