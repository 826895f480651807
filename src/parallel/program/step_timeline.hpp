#pragma once

// When every instruction of a step begins and ends. Plays the programs of all ranks with prices, step after step, until
// a step takes as long as the one before, or for eight steps. Owns the rule that says what overlaps. Pure, without
// Kokkos and MPI. Does not know where prices come from.
//
// The rule. A price of a collective has two parts. The work of the rank's own core (copies, sums, messages that the
// core itself copies) is never hidden: while a core does it, the core computes nothing. Only the time on the wire
// passes while the core computes. A collective begins when all its ranks have started it, the wire of the earlier one
// of its communicator is free, and the ports of its ranks are free. A port carries one message out and one message in
// at a time. Of collectives with a number (ServerSchedule::priority) that wait for a port, the one with the smallest
// number is next, and a server that waits updates units whose gradients are there. The core's part follows as soon as
// the wire's part has ended: the program looks after collectives between any two kernels, or if told so only while it
// waits. A message between two stages of a pipeline is played like a collective of two ranks. Each stage has a program
// of its own. A file is a wire that a rank has for itself, beside its port.

#include "parallel/plan/mesh.hpp"
#include "parallel/program/instruction.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace trainstone {

/// Times are whole numbers, so that it can be seen that a micro-batch takes exactly as long as the one before.
using Nanoseconds = std::int64_t;

/// Names a communicator of a rank. Ranks of other lines have communicators of the same name.
struct CommunicatorId {
  std::optional<Axis> axis = {};        ///< its ranks form a line of this axis; none: they are all ranks
  std::optional<StagePair> stages = {}; ///< of a line of the pipeline axis these two alone
  Index channel = 0;                    ///< tells communicators of the same ranks apart
  bool is_file = false;                 ///< of this rank alone: it reads its file

  bool operator==(CommunicatorId const&) const = default;
};

/// What a collective takes of its rank's port.
enum class PortUse { both, out, in, none };

struct CollectivePrice {
  CommunicatorId communicator = {};
  Nanoseconds core = 0; ///< work of the rank's own core
  Nanoseconds wire = 0; ///< the rest, during which the core is free
  PortUse port = PortUse::both;
  std::optional<Index> number = {}; ///< none: as collectives are called
};

struct InstructionPrice {
  Nanoseconds compute = 0;                       ///< before the collectives
  std::vector<CollectivePrice> collectives = {}; ///< one after another
};

/// Ranks that have the same program and the same prices. One of them is played for all.
struct RankClass {
  Rank first = 0; ///< the lowest of them
  Rank ranks = 1;
  Rank stage = 0;                                          ///< of a pipeline
  Rank program = 0;                                        ///< number of their program
  std::array<std::vector<std::size_t>, axes.size()> lines; ///< by axis: the classes on the first rank's line, ascending

  bool serves() const { return program != stage; }
};

/// The classes of ranks with equal keys, by their first rank. There is a program for every stage, and then one for
/// dedicated servers. \param[in] keys  by rank
/// \throws Error unless the lines of an axis meet the same classes or none in common, and a class is of one stage
std::vector<RankClass> rank_classes(Mesh const& mesh, std::vector<Index> const& keys);

using PriceOf = std::function<InstructionPrice(std::size_t number_of_class, Instruction const&)>;

struct TimelineEntry {
  Instruction instruction;
  Nanoseconds begin;
  Nanoseconds end;
  /// Only the first ones of equal micro-batches are played. This entry stands for this number of micro-batches.
  Index times = 1;

  bool operator==(TimelineEntry const&) const = default;
};

inline constexpr std::size_t act_count = static_cast<std::size_t>(Act::wait) + 1;

/// One class in one step. Entries and collectives are there if they were asked for.
struct ClassTimeline {
  RankClass ranks;
  Nanoseconds compute = 0;                     ///< what the core computes
  Nanoseconds others = 0;                      ///< waits until all ranks of a collective have started it
  std::array<Nanoseconds, act_count> act = {}; ///< by act: what the core spends on its collectives, and waiting for
                                               ///< those that all their ranks have started
  std::vector<TimelineEntry> entries = {}; ///< in order; of a wait, what it waits and the collectives' work meanwhile
  std::vector<TimelineEntry> collectives = {}; ///< of what an instruction has started: from its start to its end

  Nanoseconds exposed() const; ///< communication that nothing hides: the sum over acts
};

struct StepTimeline {
  Nanoseconds step = 0; ///< from an instruction to the same one of the next step
  std::vector<ClassTimeline> classes;

  /// The class that computes most.
  ClassTimeline const& busiest() const;
  /// Of a pipeline.
  Rank stages() const;
};

enum class Entries { no, yes };

/// When a rank looks after collectives that are under way. With `in_waits`, a rank that computes still does not hold up
/// those that wait for it to receive: for long messages the prediction may be too short.
enum class Advances { between_kernels, in_waits };

/// Plays `step` and `update` of the programs in turns. Complexity: O(classes x instructions x micro-batches until they
/// repeat), whatever the number of ranks. With dedicated servers no micro-batch repeats another.
/// \param[in] programs  by stage, then of servers
/// \throws Error if a program waits for what was not started, or for ever
StepTimeline play_step(std::vector<StepProgram> const& programs, std::vector<RankClass> const& classes,
                       PriceOf const& price, Entries entries = Entries::no,
                       Advances progress = Advances::between_kernels);

} // namespace trainstone
