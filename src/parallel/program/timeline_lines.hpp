#pragma once

// The communicators of a timeline: which collectives all their ranks have called, and when each begins. Part of
// step_timeline.cpp.

#include "parallel/program/timeline_player.hpp"

#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace trainstone::Impl {

class TimelineLines {
public:
  /// Both must outlive the object, and stay where they are.
  TimelineLines(std::vector<RankClass> const& classes, std::vector<TimelinePlayer>& players)
      : m_classes(&classes), m_players(&players) {}

  /// A rank calls the next collective of a work.
  void call(TimelinePlayer& player, TimedWork& work);
  /// Whether a collective can begin that all its ranks have called.
  bool wait_for_begin() const { return !m_ready.empty() || !m_turns.empty(); }
  /// Begins the next one of these, if it begins before this time. \return whether it did
  bool begin_one_before(Nanoseconds time);

  /// Everything that decides what comes, as numbers relative to the origin. \param[in] first  the earliest clock
  void append_state(std::vector<Index>& state, Nanoseconds first, Nanoseconds origin) const;
  void shift(Nanoseconds time);

private:
  /// The collectives of a communicator. All classes call them in the same order.
  struct Line {
    struct Meeting {
      std::vector<std::pair<TimelinePlayer*, TimedWork*>> came;
      Nanoseconds latest = 0;
      Index call = 0; ///< the largest number of it among the calls of its ranks
    };

    std::vector<std::size_t> classes;
    std::map<TimelinePlayer const*, std::size_t> called; ///< by class: how often, since the first open meeting
    std::deque<Meeting> open;
    Nanoseconds free = 0; ///< its wire
  };

  /// The next collective of a line can begin. Of those that can at one time, ranks begin first what they called first.
  struct Ready {
    Nanoseconds time;
    Index call;
    Line* line;

    bool operator<(Ready const& other) const { return std::pair(time, call) < std::pair(other.time, other.call); }
  };

  /// The same of a collective with a number. Until its ports are free, others may overtake it.
  struct Turn {
    Index number;
    Line* line;
  };

  using LineName = std::tuple<int, Rank, Rank, Index, std::size_t>; ///< a CommunicatorId, and its first class

  std::size_t number_of(TimelinePlayer const& player) const {
    return static_cast<std::size_t>(&player - m_players->data());
  }
  std::vector<std::size_t> classes_of(TimelinePlayer const& player, CommunicatorId const& communicator) const;
  Line& line_of(TimelinePlayer const& player, CommunicatorId const& communicator);
  static Nanoseconds earliest_begin(Line const& line);
  std::vector<Turn>::iterator next_turn();
  static void begin(Line& line);

  std::vector<RankClass> const* m_classes;
  std::vector<TimelinePlayer>* m_players;
  std::map<LineName, Line> m_lines;
  std::deque<Ready> m_ready; ///< ascending
  std::vector<Turn> m_turns;
};

} // namespace trainstone::Impl
