#pragma once

// The text that a run prints: short, stable lines that scripts search for. Owns their exact form: functions named
// `..._line` return one line without its end, those named `..._lines` some lines, each with its end. ProgressPrinter
// decides which steps get a line and draws the progress line on a terminal.
// Promises: "FOM:" is printed only together with a passed verification.

#include "comm/schedule/config.hpp"
#include "result/outcome.hpp"
#include "result/statistics.hpp"
#include "train/events.hpp"

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

struct RunHeader {
  std::string version; ///< "0.1.0"
  std::string git;     ///< short commit; empty = unknown
  bool dirty = false;  ///< the sources differ from that commit
  std::string kokkos;  ///< "4.5.1 Serial"
  std::string mpi;     ///< "MPICH 5.0.2"
  std::string buffers = "host";
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  bool emulated_nodes = false;
  bool emulated_network = false;
  std::string deck; ///< deck_label
};

/// "74.6 MiB"
std::string mebibytes(std::uint64_t bytes);

std::string header_line(RunHeader const& header);
/// "note: the network is emulated: ..." with what a message takes there.
std::string network_line(CommConfig const& comm);
std::string memory_line(NamedAmounts const& predicted_bytes);
std::string work_line(std::uint64_t sent_bytes, std::uint64_t messages, std::uint64_t flops,
                      std::string_view unit = "step");
/// Without ETA where eta_seconds is negative.
std::string step_line(StepReport const& step, double eta_seconds);
/// Joules, power, and joules per token, of hosts and devices where they were measured.
std::string energy_line(EnergyInfo const& energy);
/// Median step beside the least time that the measured peaks allow.
std::string floor_line(double step_seconds, double floor_seconds, double gemm_flops_per_second,
                       double bandwidth_bytes_per_second);
/// A table with a line per kernel: launches and time of a step, their share of all kernels' time, rates, and the share
/// of what a rank's peaks allow: the rate of matrix products or the bandwidth, whichever binds; "-" if these are NaN.
std::string kernel_lines(std::vector<KernelRow> const& kernels, double gemm_flops_per_second,
                         double bandwidth_bytes_per_second);
/// One line, and one more for every failed check.
std::string verification_lines(std::vector<Check> const& checks);
/// The name of the rate of such a run. Empty if the run has no rate.
std::string rate_name(Outcome outcome);
/// The lines of the rate. A valid run has FOM and FOM_PER_RANK; other runs have FOM_UNREFERENCED, FOM_EMULATED or
/// UNVERIFIED_RATE. A stopped run has none.
std::string rate_lines(Outcome outcome, Rate const& tokens_per_second, std::int64_t ranks);
/// \param[in] class_name  ClassJudgement::name
/// \param[in] is_local    the golden file was not released; the line of a VALID run says so
std::string result_line(Outcome outcome, std::string const& class_name, bool is_local, std::string const& json_path);

/// Prints the steps of a run as they finish: about twenty lines per run, those with a held-out loss and the last one
/// among them; on a terminal also one line that is redrawn after every step.
class ProgressPrinter {
public:
  ProgressPrinter(std::ostream& out, bool terminal) : m_out(out), m_terminal(terminal) {}
  void operator()(StepReport const& step);

private:
  std::ostream& m_out;
  bool m_terminal;
  std::int64_t m_first = 0; ///< step of this run
  double m_seconds = 0;     ///< of all steps but the first, which also warms up
  std::size_t m_drawn = 0;
};

/// Whether standard output is a terminal.
bool standard_output_is_terminal();

} // namespace trainstone
