#pragma once

// The input of `trainstone report`: recognises and reads its paths. Owns the names that results have in a report. Does
// not write.

#include "report/step_comparison.hpp"
#include "result/commbench_file.hpp"
#include "result/golden.hpp"
#include "result/product_file.hpp"
#include "result/study_file.hpp"
#include "result/sweep_file.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

struct NamedResult {
  std::string name; ///< of lower-case letters, digits and hyphens, one of its kind: its figures' names begin with it
  ResultFile file;
  std::optional<GoldenCurve> golden;
  StepComparison step = {};
};

struct NamedCommbench {
  std::string name;
  CommbenchFile file;
};

struct NamedSweep {
  std::string name;
  SweepFile file;
};

struct NamedProduct {
  std::string name;
  ProductFile file;
};

/// The points of a study without their results, which are among `ReportInput::results`.
struct ReportedStudy {
  std::string name;
  Study study;
  std::map<std::string, std::size_t> result_of_point; ///< places in ReportInput::results; missing points are not there
};

struct ReportInput {
  std::vector<std::string> paths;
  std::vector<NamedResult> results;
  std::vector<NamedCommbench> commbench;
  std::vector<ReportedStudy> studies;
  std::vector<NamedSweep> sweeps = {};
  std::vector<NamedProduct> products = {};
};

/// Reads all paths: a result file, a folder with a result.json, a file of commbench, matmul or of a sweep, the
/// folder of a study.
/// \param[in] golden_file  of golden curves (inputs/golden/NAME.json), which results with such a curve are shown
/// beside;
///                         empty: of a study's deck, if it is there
/// \param[in] machine_file  from which the steps of the results are predicted; empty: none
/// \throws InputError  for a path that is none of these, or damaged, naming file and fault. A machine file or a trace
///                     that does not belong to a result is no error: the result's StepComparison says so.
ReportInput read_report_input(std::vector<std::string> const& paths, std::string const& golden_file,
                              std::string const& machine_file = "");

} // namespace trainstone
