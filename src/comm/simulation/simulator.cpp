// The simulator's counts.

#include "comm/simulation/simulator.hpp"

#include "comm/simulation/playback.hpp"
#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// The longest chain of messages that ends at each rank: ports without limit, local moves and barriers free.
class Chains {
public:
  explicit Chains(std::size_t ranks) : m_ranks(ranks) {}

  void begin_round(Rank rank, Round const&) { at(rank).begin = at(rank).end; }
  void deliver(Impl::Posted const& send, Impl::Posted const& receive) {
    Index const end = std::max(at(send.rank).begin, at(receive.rank).begin) + 1;
    for (Rank const rank : {send.rank, receive.rank}) at(rank).end = std::max(at(rank).end, end);
  }
  void pass_barrier(std::vector<Rank> const& neighbours) {
    Index last = 0;
    for (Rank const rank : neighbours) last = std::max(last, at(rank).end);
    for (Rank const rank : neighbours) at(rank).end = last;
  }
  void end_round(Rank, Round const&) {}

  Index longest() const {
    Index longest = 0;
    for (Chain const& chain : m_ranks) longest = std::max(longest, chain.end);
    return longest;
  }

private:
  struct Chain {
    Index begin = 0; // of the current round
    Index end = 0;
  };
  Chain& at(Rank rank) { return m_ranks[static_cast<std::size_t>(rank)]; }

  std::vector<Chain> m_ranks;
};

Index longest_chain(std::vector<Schedule> const& schedules) {
  TRAINSTONE_REQUIRE(!schedules.empty(), "a collective needs at least one rank");
  Chains chains(schedules.size());
  auto const waiting = Impl::Playback(schedules, chains).run();
  TRAINSTONE_REQUIRE(waiting.empty(), "{} messages and barriers of {} {} wait for ever", waiting.size(),
                     to_string(schedules[0].collective), to_string(schedules[0].algorithm));
  return chains.longest();
}

Index node_barriers(Schedule const& schedule) {
  return std::ranges::count_if(schedule.rounds, [](Round const& round) {
    return !round.empty() && round.front().action == Action::node_barrier;
  });
}

Traffic maximum(Traffic const& a, Traffic const& b) {
  return {.messages = std::max(a.messages, b.messages),
          .bytes = std::max(a.bytes, b.bytes),
          .reduced = std::max(a.reduced, b.reduced),
          .inter_messages = std::max(a.inter_messages, b.inter_messages),
          .inter_bytes = std::max(a.inter_bytes, b.inter_bytes),
          .shared_bytes = std::max(a.shared_bytes, b.shared_bytes)};
}

} // namespace

CollectiveCounts count(Problem const& problem, std::vector<Schedule> const& schedules, std::size_t element_bytes,
                       Index longest_message) {
  CollectiveCounts counts{.rounds = longest_chain(schedules), .barriers = 0, .busiest = {}, .total = {}};
  for (Schedule const& schedule : schedules) {
    Traffic const traffic = predict_traffic(schedule, problem.topology, element_bytes, longest_message);
    counts.barriers = std::max(counts.barriers, node_barriers(schedule));
    counts.busiest = maximum(counts.busiest, traffic);
    counts.total += traffic;
  }
  return counts;
}

} // namespace trainstone
