#pragma once

// Why training suits HPC: the operations of a run's step for each byte of memory and for each byte sent, by kind of
// kernel, beside what the machine does in the same time. Pure functions.

#include "model/work.hpp"
#include "report/page.hpp"
#include "report/report_input.hpp"

#include <string>
#include <vector>

namespace trainstone {

/// What one kind of kernels does in a step of a rank.
struct IntensityRow {
  std::string kernels; ///< "matrix products"
  PhaseWork work;
};

/// The operations of a step of rank 0, as its kernels declare them, and what it sends.
struct Intensity {
  std::vector<IntensityRow> rows; ///< of the model and of the update
  std::uint64_t sent_bytes = 0;   ///< for the training, as counted

  PhaseWork sum() const;
};

/// \throws InputError if the run cannot be planned again, or has other operations than this version plans
Intensity intensity_of(ResultFile const& file);

Page intensity_section(NamedResult const& named);

} // namespace trainstone
