#pragma once

// The output of commbench. Owns the rows of measured collectives, their columns (as in nccl-tests, and a prediction
// beside every time) and derived figures: ratios to MPI's own collectives. Pure: measures nothing. Promises: a result
// that was not exact has no time and no rate in any form.

#include "report/crossover_table.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone {

/// The versions and settings of a measurement.
struct CommbenchHeader {
  std::string version; ///< "0.1.0 git 1a2b3c4d"
  std::string mpi;     ///< "MPICH 5.0.2"
  std::string nccl;    ///< "2.28.9"; empty: not measured
  std::string thread_level;
  std::vector<std::pair<std::string, std::string>> mpi_settings; ///< control variables that are set
  std::vector<std::string> transports;                           ///< libraries of them that MPI has loaded
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  bool emulated_nodes = false;
  std::string cpu;
  std::string kokkos;
  std::string buffers; ///< "shared", "private", "staged" or "device"
  std::string machine; ///< where predictions come from
  std::string choice;  ///< how auto and MPI's form are chosen
  std::string timing;  ///< "10 samples of each ..."
};

/// Measured time divided by predicted time, for the parts of a prediction, by name.
using Drift = std::vector<std::pair<std::string, double>>;

/// One line, and a note if one of them is beyond 1.5 or below 1/1.5: then the machine is not in the state that it was
/// calibrated in. `when`: "before", "after". Empty for an empty drift.
std::string drift_lines(std::string const& when, Drift const& drift);

/// Whether a row is of a library's own collective, beside which ours are measured: "mpi", "nccl".
bool is_of_library(std::string_view algorithm);

/// One contestant at one size.
struct CommbenchRow {
  std::string collective;
  std::string type;
  std::string operation; ///< "none" where nothing is added up
  std::int64_t root = -1;
  std::string algorithm; ///< "ring", "auto", "mpi", "nccl"
  std::string picked;    ///< of auto: what it runs; of mpi: "in place", "two buffers"
  std::uint64_t bytes = 0;
  std::int64_t count = 0;
  std::vector<double> seconds; ///< samples, per call; sample i of all rows of one size was measured in pass i
  int calls = 0;               ///< per sample
  double bus_factor = 1;
  std::optional<double> predicted_seconds;
  std::optional<std::int64_t> wrong; ///< elements; nothing: not checked

  bool is_wrong() const { return wrong && *wrong > 0; }
  /// "auto (ring)"
  std::string name() const;
};

/// Of MPI's forms, which stand one after the other, the one with the least median time stays, or the first one of equal
/// ones. \param[in] rows  of one size
std::vector<CommbenchRow> with_fastest_form(std::vector<CommbenchRow> rows);

/// GB/s (1e9 bytes) of the median; nothing if the result is wrong or there is no data.
std::optional<double> algorithm_bandwidth(CommbenchRow const& row);
/// predicted / measured - 1
std::optional<double> residual(CommbenchRow const& row);

/// The time of MPI's own collective divided by the time of ours: medians over the passes of one size, then over sizes.
struct RatioToMpi {
  std::string algorithm;
  double geometric_mean = 0;
  double minimum = 0;
  std::uint64_t minimum_bytes = 0; ///< the size where it is
  std::size_t sizes = 0;           ///< how many sizes both have a right result at
};

/// Per algorithm, in the order of the rows; rows are of one collective and type. Empty without rows of MPI.
std::vector<RatioToMpi> ratios_to_mpi(std::span<CommbenchRow const> rows);

/// An algorithm's predictions that are at most `prediction_limit` of the measured median away from it.
struct PredictionScore {
  std::string algorithm;
  std::size_t within = 0;
  std::size_t sizes = 0; ///< that have a prediction and a right result
};
inline constexpr double prediction_limit = 0.25;

/// Per algorithm, without auto, in the order of the rows; rows are of one collective and type.
std::vector<PredictionScore> prediction_scores(std::span<CommbenchRow const> rows);

/// The choices of `auto`: rows of one collective and type, without MPI's rows, wrong rows and rows without a price.
std::vector<SizeComparison> comparisons(std::span<CommbenchRow const> rows);

/// Lines, each with its end and beginning with "#".
std::string commbench_header_lines(CommbenchHeader const& header);
std::string commbench_column_lines();
/// One line without its end.
std::string commbench_row_line(CommbenchRow const& row);
/// Ratios, scores of predictions and crossovers of one collective and type.
std::string commbench_summary_lines(std::span<CommbenchRow const> rows);

/// Everything as JSON text, samples included. Times in seconds, sizes in bytes, rates in bytes/s.
/// \param[in] after  nothing: the measurement is not finished, and has these rows so far
std::string commbench_json(CommbenchHeader const& header, Drift const& before, std::optional<Drift> const& after,
                           std::span<CommbenchRow const> rows);

} // namespace trainstone
