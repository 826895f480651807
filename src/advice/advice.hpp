#pragma once

// Which of all ways to run a deck on N ranks is the fastest that fits. Owns the search. A way is a deck with keys set,
// planned by the code that plans every run. The search goes in three steps. A bound on the training state leaves out
// what cannot fit. Plans of the first stage of each kind leave out what does not fit, and a rough time says in which
// order to go on. Complete plans and timelines of the most promising ways decide. A timeline is not played if the way
// cannot win: its work alone takes longer than the fastest way so far. Pure.

#include "advice/step_machine.hpp"
#include "advice/way.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

struct RankedWay {
  Way way;
  std::vector<std::string> keys; ///< that --set takes
  double rough_seconds = 0;      ///< of a step: decides what is played
  double least_seconds = 0;      ///< no step is shorter: what one stage computes, and before and behind it the others
  bool has_time = true;          ///< whether the machine has all rates that the time of a step follows from
  std::uint64_t needed = 0;      ///< bytes; of a way that was not played of one rank of each kind of stage
  std::uint64_t on_host = 0;     ///< bytes of other memory of the host, and of a file, of the first stage
  std::uint64_t in_file = 0;
  bool played = false; ///< whether all ranks that may need most, and the step's timeline, were planned
  StepTime time = {};  ///< where played
};

/// A mesh of which no way fits.
struct ExcludedMesh {
  Way mesh;
  std::optional<std::uint64_t> least; ///< bytes of the first stage, of the way that needs least; nothing: state alone
                                      ///< is too much
};

struct Advice {
  WayBatch batch;
  std::int64_t ways = 0;           ///< looked at
  std::int64_t without_a_plan = 0; ///< of these: their state alone is too much
  std::vector<RankedWay> ranked;   ///< played ones by their time, then the others by their rough time, then those
                                   ///< without a time
  std::vector<ExcludedMesh> excluded;
};

struct AdviceRequest {
  DeckOnRanks asked;
  std::optional<std::uint64_t> memory; ///< bytes per rank; nothing: everything fits
  std::size_t listed = 12;             ///< ways whose timelines are played for the list, few of a mesh
  std::size_t played = 16;             ///< with those that are played because they may still be faster, at most
};

/// Ways of one mesh that are played at most, so that the list has different meshes.
inline constexpr std::size_t most_of_a_mesh = 3;

/// Bytes of the training state that the fullest rank has at least, without padding.
double least_state(Way const& way, RunConfig const& config);

/// \throws InputError if the deck's batch fits to no mesh
Advice find_ways(AdviceRequest const& request, StepMachine const& machine);

/// Of those that were not played: how many can still be faster than the fastest.
std::int64_t may_still_win(Advice const& advice);

/// The number of ranks from which on a way fits, found by doubling. \param[in] most  where the search ends
std::optional<std::int64_t> ranks_that_fit(AdviceRequest const& request, std::int64_t most);

/// The deck's own way, as far as ways say it.
Way own_way(DeckOnRanks const& asked);
/// Number of choices in which two ways differ.
int changes(Way const& from, Way const& to);
/// Of those that fit the one with the fewest changes, of these the first.
RankedWay const* least_change(Way const& from, std::vector<RankedWay> const& ranked);

} // namespace trainstone
