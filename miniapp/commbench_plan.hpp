#pragma once

// What commbench is going to measure: every collective at every size, and who takes part. Owns the choice of the
// contestants. Plain values; measures nothing.

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
  std::string algorithm;   ///< "ring", "auto", "mpi"; there is a row for every form of MPI's own
  std::string picked = {}; ///< what auto runs; the form of MPI's own
  std::optional<double> predicted_seconds = {};
  std::vector<PricedAlgorithm> candidates = {}; ///< of auto

  /// Of auto: from now on this is what it runs.
  void pick(PricedAlgorithm const& choice);
  void predict(double seconds);
};

/// All that is measured against each other on one problem.
struct PlannedContest {
  Problem problem;
  ElementType type;
  std::vector<PlannedRow> rows;

  std::vector<Contestant> contestants() const;
  std::uint64_t data_bytes() const { return static_cast<std::uint64_t>(problem.elements()) * size_of(type); }
};

struct CommbenchPlan {
  std::vector<PlannedContest> contests; ///< of one collective and type one after the other, sizes ascending
  std::vector<std::string> left_out;    ///< who was not named and cannot take part, and why

  /// What the contests need on a rank: one runs at a time.
  MeasuredBytes bytes(MessageBuffers buffers, Rank rank) const;
};

/// Without predictions and choices.
/// \throws InputError if an algorithm that was named refuses a collective that has it
CommbenchPlan plan_commbench(CommbenchOptions const& options, Topology const& topology);

/// Fills them in; auto runs what is predicted to be the quickest until a measurement decides between its candidates.
void predict_contests(CommbenchPlan& plan, MachineModel const& machine);

} // namespace trainstone
