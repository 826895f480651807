#pragma once

// The machine for advice, on which every deck has a time: rates of products and memory, the model of messages, and if
// parts were measured for the deck that is asked about, how far these are from the rates. Owns how measured times of
// one deck become times of another one: each part keeps its ratio to the peaks. Pure.

#include "advice/deck_on_ranks.hpp"
#include "parallel/program/offload_prediction.hpp"
#include "report/machine_source.hpp"
#include "train/plan/step_prediction.hpp"

#include <memory>
#include <optional>
#include <string>

namespace trainstone {

struct StepMachine {
  MachineModel model;
  ComputeRates rates;                       ///< of one rank
  PartTimes measured = {}, at_peaks = {};   ///< of the deck that was measured; no parts: none was
  std::optional<OffloadRates> offload = {}; ///< nothing: steps that move state have no time
  std::string description = {};             ///< lines, each with its end
  std::shared_ptr<PriceMemory> prices = std::make_shared<PriceMemory>(); ///< of all decks that are asked about
};

/// Where no machine file is given: a card of the order of 100 TFLOP/s and 1.5 TB/s per rank.
inline constexpr ComputeRates assumed_rates{100e12, 1.5e12};

/// \param[in] path  of --machine; empty: assumed figures
/// \throws InputError if the file has no rates of products and memory, or not the messages that the ranks need
StepMachine read_step_machine(std::string const& path, DeckOnRanks const& asked);

/// What the parts of a run take on the machine. Blocks that the deck paces take at least their pace.
PartTimes part_times(ResolvedRun const& run, RunPlan const& plan, StepMachine const& machine);

/// What a step takes longer because an update moves state: copies, and waits for a file. \param[in] step  in s, without
/// \throws InputError if the run moves state, and the machine has no rates of that
double seconds_of_moves(RunPlan const& plan, PartTimes const& times, StepMachine const& machine, double step);

/// Where the time of a step goes, as means over ranks, in s.
struct StepTime {
  double step = 0;
  double compute = 0;
  double bubble = 0; ///< waits for other ranks: of a pipeline most of it is the bubble
  /// Communication that nothing hides: over tensor ranks, over data ranks, between stages, and of all ranks.
  double tensor = 0, data = 0, pipeline = 0, control = 0;
  double offload = 0;        ///< copies of state, and waits for its file, of the stage where they take longest
  bool extrapolated = false; ///< over micro-batches
};

/// Micro-batches per stage beyond which a pipeline's step is not played as a whole. The steps with as many and with
/// twice as many micro-batches as stages are: the rest of the step repeats what is between them.
inline constexpr Index played_rounds = 2;

/// The time of a run's step, by the timeline of its programs (parallel/program/step_timeline.hpp).
/// \throws InputError as above, or if the machine's network has no room for the run's nodes
/// Complexity: O(stages^2 x instructions of a micro-batch), whatever the numbers of ranks and micro-batches.
StepTime price_step(ResolvedRun const& run, StepMachine const& machine);

} // namespace trainstone
