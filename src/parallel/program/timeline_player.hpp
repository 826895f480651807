#pragma once

// One class of ranks while a timeline is played: its place in the program, its clock, and the collectives that it has
// started. Part of step_timeline.cpp.

#include "parallel/program/step_timeline.hpp"

#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace trainstone::Impl {

inline constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();

/// What an instruction has started on one class: collectives, one after another.
struct TimedWork {
  Instruction started;
  std::vector<CollectivePrice> collectives;
  Nanoseconds begin = 0;
  std::size_t next = 0;        ///< the collective that is under way
  Nanoseconds called = never;  ///< when the last of its ranks started it
  Nanoseconds arrival = never; ///< when the wire's part of it has ended

  bool is_done() const { return next == collectives.size(); }
};

/// The instructions of a step and of an update, again and again.
class TimelinePlace {
public:
  explicit TimelinePlace(StepProgram const& program);

  Instruction instruction() const { return later((*m_segments[m_segment]).instructions[m_next], m_time); }
  Segment const& segment() const { return *m_segments[m_segment]; }
  std::size_t segment_number() const { return m_segment; }
  std::size_t next() const { return m_next; }
  Index time() const { return m_time; }
  Index step() const { return m_step; }
  /// How often the segment is to be played after this time.
  Index times_left() const { return segment().times - 1 - m_time; }

  enum class Border { none, repetition, segment, step };
  /// \return what ends with this instruction
  Border advance();
  void skip(Index times) { m_time += times; }

private:
  std::vector<Segment const*> m_segments; ///< that have instructions
  std::size_t m_segment = 0, m_next = 0;
  Index m_time = 0, m_step = 0;
};

/// What a server does about a unit, and when it can (ServerSchedule::priority).
struct UnitTurn {
  std::vector<Instruction> pushes; ///< the waits for them
  Instruction update = {}, publish = {};
  bool done = false, early = false; ///< in this step; before its turn
};

class TimelinePlayer {
public:
  /// \param[in] moved  gets the numbers of players whose next event may be another one; must outlive the object
  TimelinePlayer(StepProgram const& program, RankClass const& of, Advances progress, std::size_t number,
                 std::vector<std::size_t>& moved);

  TimelinePlace place;
  Nanoseconds clock = 0;
  TimedWork* waits_for = nullptr;
  TimedWork* works_on = nullptr; ///< until the clock's time
  bool computes = false;
  Nanoseconds left = 0; ///< of what it computes
  std::vector<CollectivePrice> then_starts = {};
  Nanoseconds instruction_begin = 0;
  Index calls = 0;      ///< of collectives, so far
  ClassTimeline result; ///< sums since the step began

  /// \return null if the work must wait for the scratch of an earlier reduction, or has no collective
  TimedWork* start(Instruction const& instruction, std::vector<CollectivePrice> collectives);
  /// What an act has started that has not been waited for; null: nothing.
  TimedWork* find(Act act, Instruction const& instruction);
  /// The work was waited for.
  void erase(TimedWork const& work) { m_works.erase(key_of(work.started)); }

  void arrives(TimedWork& work, Nanoseconds time);
  /// The arrived work that the rank goes on with first; null: none.
  TimedWork* next_arrival() const;
  /// The same, while the rank computes.
  TimedWork* next_interruption() const { return m_progress == Advances::between_kernels ? next_arrival() : nullptr; }
  /// The rank does the core's part of what has arrived.
  void take(TimedWork& work);
  /// The core's part is done.
  void end(TimedWork& work);
  /// The reduction that has waited longest for scratch, if it is there now; else null.
  TimedWork* next_of_queue();

  Nanoseconds port_free(PortUse use) const;
  void use_port(PortUse use, Nanoseconds until);

  /// Whether the program updates unit by unit.
  bool updates_units() const { return m_updates_units; }
  /// The first unit, in the order of the program, that can be updated while the rank waits for pushes; none: there is
  /// none.
  std::optional<std::size_t> next_unit() const;
  /// From now on it is done.
  UnitTurn const& take_unit(std::size_t number);
  /// Whether the instruction was done before its turn. If not, its turn has come.
  bool was_done(Instruction const& instruction);
  void begin_step();

  /// When the player goes on; never: it waits for another class.
  Nanoseconds next_event() const;
  /// The player goes on, or others have changed when it does: a collective arrives, or all times have moved on.
  void move() { m_moved->push_back(m_number); }
  /// Everything that decides what comes, as numbers relative to the given time and to the repetition.
  void append_state(std::vector<Index>& state, Nanoseconds origin) const;
  /// Moves all times and micro-batches on by a number of repetitions.
  void shift(Nanoseconds time, Index micro_batches);

private:
  using Key = std::tuple<Act, Index, Index, Index, Index>;
  static Key key_of(Act act, Instruction const& instruction) {
    return {act, instruction.subject, instruction.micro_batch, instruction.slot, instruction.piece};
  }
  static Key key_of(Instruction const& started) { return key_of(started.act, started); }

  Advances m_progress;
  std::size_t m_number;
  std::vector<std::size_t>* m_moved;
  Nanoseconds m_out_free = 0, m_in_free = 0; ///< of its port
  std::map<Key, TimedWork> m_works;
  std::vector<TimedWork*> m_arriving;    ///< whose arrival is known
  std::deque<TimedWork*> m_queue;        ///< reductions that wait for scratch
  std::multiset<Index> m_scratch_in_use; ///< of reductions under way
  bool m_updates_units = false;
  std::vector<UnitTurn> m_units; ///< of a server
};

} // namespace trainstone::Impl
