#pragma once

// The step of a run that was made, predicted from a machine file and measured by the run's trace. Owns the rule whether
// file and trace belong to the run, and what is said where they do not, or are not there. Reads the trace; draws
// nothing.

#include "report/measured_step.hpp"
#include "report/page.hpp"
#include "report/predicted_step.hpp"
#include "result/result_file.hpp"

#include <optional>
#include <string>

namespace trainstone {

/// A machine file that was read.
struct NamedMachine {
  std::string path;
  MeasuredMachine machine;
};

struct StepComparison {
  std::string machine; ///< machine_line() of the prediction
  std::optional<PredictedStep> predicted;
  std::optional<MeasuredStep> measured; ///< only beside a prediction
  std::optional<Line> missing;          ///< what is not there, why, and how to get it; nothing: all is there
};

/// \param[in] machine  nothing: none was given
StepComparison compare_step(ResultFile const& file, std::optional<NamedMachine> const& machine);

} // namespace trainstone
