#include "comm/simulation/explanation.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/schedule/expected_results.hpp"
#include "comm/simulation/symbolic_run.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <map>

namespace trainstone {

namespace {

using Impl::Posted;
using Impl::SymbolicBuffer;
using Impl::Write;

constexpr std::size_t most_rounds = 300; // nobody reads more

/// Plays like the proof, and writes down what happens in which round.
class Recorder {
public:
  Recorder(Problem const& problem, std::vector<Schedule> const& schedules)
      : m_run(problem, schedules, [this](Write const& write) { m_writes.push_back({m_now, write}); }),
        m_signals(!has_data(problem.collective)),
        m_ranks(schedules.size()),
        m_rounds(1),
        m_heard(schedules.size()) {
    for (Schedule const& schedule : schedules) note_heard(schedule.rank);
  }

  // --- Impl::Playback

  void begin_round(Rank rank, Round const& round) {
    at(rank).begin = at(rank).end;
    at(rank).end = m_now = at(rank).begin + 1;
    for (std::size_t i = 0; i < Impl::early_moves(round); ++i)
      if (round[i].is_local()) in_round(m_now).moves.push_back({rank, round[i]});
    m_run.begin_round(rank, round);
  }

  void deliver(Posted const& send, Posted const& receive) {
    m_now = std::max(at(send.rank).begin, at(receive.rank).begin) + 1;
    for (Rank const rank : {send.rank, receive.rank}) at(rank).end = std::max(at(rank).end, m_now);
    std::size_t const writes_before = m_writes.size();
    m_run.deliver(send, receive);
    ExplainedMessage message{send.rank, receive.rank, send.move->from, receive.move->to, {}};
    if (m_writes.size() > writes_before) message.contents = contents_of(m_writes.back().write.pieces);
    in_round(m_now).messages.push_back(message);
  }

  void pass_barrier(std::vector<Rank> const& neighbours) {
    std::size_t last = 0;
    for (Rank const rank : neighbours) last = std::max(last, at(rank).end);
    for (Rank const rank : neighbours) at(rank).end = last;
    m_run.pass_barrier(neighbours);
  }

  void end_round(Rank rank, Round const& round) {
    m_now = at(rank).end;
    for (std::size_t i = Impl::early_moves(round); i < round.size(); ++i)
      if (round[i].is_local()) in_round(m_now).moves.push_back({rank, round[i]});
    if (!round.empty() && round[0].action == Action::node_barrier) in_round(m_now).moves.push_back({rank, round[0]});
    m_run.end_round(rank, round);
    note_heard(rank);
  }

  /// The rounds, with what every rank holds in the given places.
  std::vector<ExplainedRound> rounds(Problem const& problem, std::vector<std::vector<Range>> const& places) {
    for (std::size_t round = 0; round < m_rounds.size(); ++round) {
      std::ranges::stable_sort(m_rounds[round].messages, {}, &ExplainedMessage::to);
      std::ranges::stable_sort(m_rounds[round].moves, {}, &ExplainedMove::rank);
      m_rounds[round].held.resize(m_ranks.size());
      if (m_signals)
        hold_heard(round);
      else
        hold_data(round, problem, places);
    }
    return std::move(m_rounds);
  }

private:
  struct RankState {
    std::size_t begin = 0; // after which round the rank's current one began
    std::size_t end = 0;   // and in which it ends, as far as known
  };
  struct TimedWrite {
    std::size_t round;
    Write write;
  };
  struct Heard {
    std::size_t round;
    std::vector<Rank> ranks;
  };

  RankState& at(Rank rank) { return m_ranks[static_cast<std::size_t>(rank)]; }

  ExplainedRound& in_round(std::size_t round) {
    TRAINSTONE_REQUIRE_INPUT(
        round <= most_rounds,
        "this takes more than {} rounds, the most that are explained: take fewer elements or longer "
        "segments",
        most_rounds);
    if (round >= m_rounds.size()) m_rounds.resize(round + 1);
    return m_rounds[round];
  }

  void note_heard(Rank rank) {
    if (!m_signals) return;
    Heard heard{at(rank).end, {}};
    for (Rank other = 0; other < static_cast<Rank>(m_ranks.size()); ++other)
      if (m_run.has_heard(rank, other)) heard.ranks.push_back(other);
    m_heard[static_cast<std::size_t>(rank)].push_back(heard);
  }

  void hold_heard(std::size_t round) {
    for (std::size_t rank = 0; rank < m_ranks.size(); ++rank) {
      Content content;
      for (Heard const& heard : m_heard[rank])
        if (heard.round <= round) content.ranks = heard.ranks;
      m_rounds[round].held[rank] = {{content}};
    }
  }

  /// All that was written up to a round, by whomever, is there after it. Made anew for every round: the play is not in
  /// the order of rounds.
  void hold_data(std::size_t round, Problem const& problem, std::vector<std::vector<Range>> const& places) {
    std::vector<SymbolicBuffer> data;
    for (Rank rank = 0; rank < problem.ranks(); ++rank) {
      Range const held = Impl::initially_held(problem, rank);
      data.emplace_back(problem.elements());
      data.back().write(held, {{held.size(), held.begin, rank}});
    }
    for (auto const& [when, write] : m_writes)
      if (write.buffer == BufferId::data && when <= round)
        data[static_cast<std::size_t>(write.owner)].write(write.range, write.pieces);
    for (std::size_t rank = 0; rank < data.size(); ++rank)
      for (Range const& place : places[rank]) m_rounds[round].held[rank].push_back(contents_of(data[rank].read(place)));
  }

  Contents contents_of(Impl::Pieces const& pieces) {
    Contents contents;
    for (Impl::Piece const& piece : pieces)
      contents.push_back({piece.size, piece.element, piece.defined() ? ranks_in(piece.sum) : std::vector<Rank>{}});
    return contents;
  }

  std::vector<Rank> const& ranks_in(Impl::Sum sum) {
    auto const [entry, is_new] = m_ranks_in.try_emplace(sum);
    if (is_new) {
      std::vector<std::uint64_t> const times = m_run.trees().contributions(sum);
      for (std::size_t rank = 0; rank < times.size(); ++rank)
        if (times[rank] > 0) entry->second.push_back(static_cast<Rank>(rank));
    }
    return entry->second;
  }

  std::size_t m_now = 0; // the round of what is being played
  std::vector<TimedWrite> m_writes;
  Impl::SymbolicRun m_run;
  bool m_signals;
  std::vector<RankState> m_ranks;
  std::vector<ExplainedRound> m_rounds;
  std::vector<std::vector<Heard>> m_heard; // by rank
  std::map<Impl::Sum, std::vector<Rank>> m_ranks_in;
};

std::vector<std::vector<Range>> places_of(Problem const& problem) {
  std::vector<std::vector<Range>> places(static_cast<std::size_t>(problem.ranks()));
  if (!has_data(problem.collective)) {
    for (std::vector<Range>& of_rank : places) of_rank = {{0, 0}};
    return places;
  }
  if (has_halves(problem.collective)) {
    for (std::vector<Range>& of_rank : places) of_rank = {sent_half(problem), received_half(problem)};
    return places;
  }
  for (Rank rank = 0; rank < problem.ranks(); ++rank) {
    for (Rank place = 0; place < problem.ranks(); ++place) {
      bool const exchange = problem.collective == Collective::all_to_all;
      places[static_cast<std::size_t>(rank)].push_back(exchange ? all_to_all_range(problem.partition, rank, place)
                                                                : problem.partition.range(place));
    }
  }
  return places;
}

} // namespace

Rank Explanation::contributors() const {
  switch (problem.collective) {
  case Collective::all_reduce:
  case Collective::reduce_scatter:
  case Collective::reduce:
  case Collective::barrier: return problem.ranks();
  case Collective::server_push: return problem.workers();
  case Collective::all_gather:
  case Collective::broadcast:
  case Collective::gather:
  case Collective::scatter:
  case Collective::all_to_all:
  case Collective::server_pull:
  case Collective::send_receive:
  case Collective::send:
  case Collective::copy:
  case Collective::signal_wait: return 1;
  }
  return 1;
}

Explanation explain(Problem const& problem, Algorithm algorithm) {
  std::vector<Schedule> const schedules = make_schedules(problem, algorithm);
  auto const finding = find_defect(problem, schedules);
  TRAINSTONE_REQUIRE(!finding, "{} {}: {}", to_string(problem.collective), to_string(algorithm), finding->message);
  Explanation explanation{problem, algorithm, places_of(problem), {}, count(problem, schedules, 1)};
  Recorder recorder(problem, schedules);
  Impl::Playback(schedules, recorder).run();
  explanation.rounds = recorder.rounds(problem, explanation.places);
  return explanation;
}

} // namespace trainstone
