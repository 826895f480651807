#pragma once

// The measurements that commbench is going to make: every collective at every size, and the contestants. Owns the
// choice of the contestants. Plain values; measures nothing.

#include "commbench.hpp"

#include "comm/measurement/measured_choice.hpp"
#include "comm/simulation/machine_model.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// One line of the table.
struct PlannedRow {
  Contestant contestant = {};
  std::string algorithm;   ///< "ring", "auto", "mpi", "nccl"; there is a row for every form of MPI's own
  std::string picked = {}; ///< what auto runs; the form of MPI's own
  std::optional<double> predicted_seconds = {};
  std::vector<PricedAlgorithm> candidates = {}; ///< of auto

  /// Sets the algorithm that `auto` runs from now on.
  void pick(PricedAlgorithm const& choice);
  void predict(double seconds);
};

/// All contestants that are measured against each other on one problem.
struct PlannedContest {
  Problem problem;
  ElementType type;
  std::vector<PlannedRow> rows;

  std::vector<Contestant> contestants() const;
  std::uint64_t data_bytes() const { return static_cast<std::uint64_t>(problem.message_elements()) * size_of(type); }
};

struct CommbenchPlan {
  std::vector<PlannedContest> contests; ///< of one collective and type one after the other, sizes ascending
  std::vector<std::string> left_out;    ///< who was not named and cannot take part, and why

  bool has(CollectiveProvider provider) const;
  /// Takes its rows out of the contests, and contests that are empty then.
  void leave_out(CollectiveProvider provider, std::string const& reason);

  /// Memory that the contests need on a rank. One contest runs at a time.
  MeasuredBytes bytes(MessageBuffers buffers, Rank rank) const;
};

/// Makes the plan without predictions and choices.
/// \param[in] nccl  whether this build has NCCL
/// \throws InputError if an algorithm that was named refuses a collective that has it
CommbenchPlan plan_commbench(CommbenchOptions const& options, Topology const& topology, bool nccl);

/// Fills in predictions and choices. `auto` runs the algorithm with the least predicted time, until a measurement
/// decides between its candidates.
void predict_contests(CommbenchPlan& plan, MachineModel const& machine);

} // namespace trainstone
