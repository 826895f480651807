#pragma once

// What an update takes that moves its state: the copies, and the waits for a file. Pure functions of a plan and of
// rates.

#include "parallel/plan/shard_plan.hpp"

namespace trainstone {

/// In bytes/s, of one rank while all ranks of its node move theirs.
struct OffloadRates {
  double copy = 0;  ///< between the memory of kernels and the host's
  double read = 0;  ///< of a file, in turn with writes, while kernels update what is there
  double write = 0; ///< as above
  // While a file is read and written, which shares the memory's bandwidth. 0: not known, as without a file.
  double copy_beside_file = 0;
  double update_of_element = 0; ///< kernels, in s, with optimizer and types of the deck that was measured

  bool operator==(OffloadRates const&) const = default;
};

/// In s.
struct PredictedMoves {
  double copies = 0; ///< of an update
  double slower = 0; ///< that kernels take longer than in place; below 0: less long, as chunks lie in a cache
  double waits = 0;  ///< of an update, for the file
  double file = 0;   ///< that the file is read or written for an update, if nothing waits
  /// What of the file's time something else covers.
  double hidden() const { return file - waits; }
  /// That an update takes longer than in place.
  double total() const { return copies + slower + waits; }
};

/// The same of a step that takes `step` seconds without these moves, update included.
PredictedMoves predict_moves_of_step(ShardPlan const& plan, OffloadRates const& rates, double update_of_element,
                                     double step);

/// The steady state of updates that follow each other: requests queue at the file one after the other, as
/// OptimizerState makes them. \param[in] update_of_element  in place, in s   \param[in] between  from the end of an
/// update to the next one, in s   Linear in the number of chunks.
PredictedMoves predict_moves(ShardPlan const& plan, OffloadRates const& rates, double update_of_element,
                             double between);

} // namespace trainstone
