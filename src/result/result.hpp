#pragma once

// The result file of a run, and the file of an estimate, which has the same names for a run that has not been made.
// Owns their form (schema_version), the description of the machine, and the writing of files, so that a reader sees the
// whole file or none. Promises that NaN is never written: a value that is no number becomes null.

#include "comm/schedule/emulated_network.hpp"
#include "core/file_reads.hpp"
#include "core/files_of_ranks.hpp"
#include "core/folder_lock.hpp"
#include "deck/benchmark_class.hpp"
#include "deck/deck.hpp"
#include "result/outcome.hpp"
#include "result/pipeline_info.hpp"
#include "result/rank_map.hpp"
#include "result/servers_info.hpp"
#include "result/statistics.hpp"
#include "result/work_amounts.hpp"
#include "train/early_steps.hpp"
#include "train/events.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainstone {

inline constexpr int result_schema_version =
    1; ///< of perf/result.schema.json, which tells the form and changes with it

struct CodeInfo {
  std::string version;
  std::string git;
  bool dirty = false;
  std::string compiler; ///< describe_compiler()
  std::string kokkos;   ///< version and execution space
};

struct MachineInfo {
  std::string cpu;
  std::int64_t cores = 0; ///< that this process may run on
  std::uint64_t memory_bytes = 0;
  std::string mpi;
  std::map<std::string, std::string> environment; ///< variables of a fixed list only
  std::string device = {};                        ///< what its maker calls it; empty: kernels run on the host
};

struct TopologyInfo {
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  std::int64_t threads_per_rank = 1; ///< of kernels
  std::string buffers = "host";
  bool emulated_nodes = false;
  EmulatedNetwork network;            ///< emulated; not slow: the machine's own
  std::int64_t devices_per_node = 0;  ///< that ranks use; 0: kernels run on the host
  std::vector<RankPlace> places = {}; ///< by rank
  /// That matrix products of libraries use on the host; 0: no such library multiplies, or an older file does not tell.
  std::int64_t threads_of_libraries = 0;

  /// Threads of kernels and of libraries, whichever are more: the two take turns.
  std::int64_t busy_threads_per_rank() const { return std::max(threads_per_rank, threads_of_libraries); }
};

/// Who computed.
struct ProviderInfo {
  std::vector<std::string> gemm; ///< all providers that products had, the usual one first
  std::string attention;         ///< describe_attention()
};

/// Rates measured in the same run; NaN if they were not measured.
struct PeakInfo {
  double gemm_flops_per_second = std::numeric_limits<double>::quiet_NaN();
  double bandwidth_bytes_per_second = std::numeric_limits<double>::quiet_NaN();
};

struct RankInfo {
  std::int64_t rank = 0;
  std::string host;
  double median_step_seconds = 0;
  double median_own_seconds = 0;    ///< without communication, in which faster ranks wait for slower ones
  double communication_seconds = 0; ///< sum over the window
  bool serves = false;              ///< it computes nothing, and waits for ranks that do
};

/// Of the ranks that compute, the one with the largest median_own_seconds; null: there is none.
RankInfo const* find_straggler(std::vector<RankInfo> const& ranks);

/// The checkpoints that a run wrote, and the one that it went on from.
struct CheckpointInfo {
  std::string resumed_from; ///< empty: it began anew
  std::int64_t resumed_step = 0;
  std::int64_t restarts = 0; ///< of the training, this run's included
  std::int64_t written = 0;
  std::string last;        ///< path of the last one; empty: none
  std::uint64_t bytes = 0; ///< of all that were written
  double seconds = 0;      ///< for that
  FileReads reads;         ///< of the one that it went on from, to verify and to load it: reads_of_all
};

/// The golden file that a run was compared with.
struct GoldenSource {
  std::string digest;        ///< of the file's bytes
  std::string key;           ///< of the curve or the first step: the run's golden key, or that of its deck in fp32
  std::string recorded_with; ///< of the curve or the first step
  bool released = false;     ///< the file is one of this program's (released_curves.hpp), not one of the user's
};

/// The algorithm that a run chose by measurement.
struct ChosenAlgorithm {
  std::string key;       ///< that leaves the choice to a measurement: "comm.allreduce"
  std::string algorithm; ///< the fastest one
  std::int64_t ranks = 0;
  std::uint64_t bytes = 0;                             ///< of the data that it was tried with
  std::vector<std::pair<std::string, double>> seconds; ///< of all that were tried, by name
};

struct Result {
  std::string kind = "run";
  Outcome outcome = Outcome::invalid;
  std::vector<Parameter> parameters; ///< resolved_parameters
  std::string deck;                  ///< deck_label
  std::string deck_hash;
  std::string golden_key;
  std::optional<GoldenSource> golden; ///< none: losses were compared with nothing
  ClassJudgement benchmark_class;
  CodeInfo code;
  MachineInfo machine;
  TopologyInfo topology;
  ProviderInfo providers;
  std::vector<ChosenAlgorithm> chosen; ///< one for every key that was measured
  PeakInfo peaks;
  WorkAmounts predicted;
  WorkAmounts counted;
  std::uint64_t resident_bytes = 0;   ///< resident set after the training; informative
  std::uint64_t large_page_bytes = 0; ///< the part of it in pages of 2 MiB
  std::vector<double> losses_before;  ///< of the steps before a restart
  std::vector<StepReport> samples;    ///< every step of this run
  EarlySteps early;                   ///< of the training, those before a restart included
  CheckpointInfo checkpoints;
  FileReads data;                          ///< reads_of_all, the check of all tokens included
  std::optional<FilesOfRanks> state_files; ///< none: no state lies in files
  std::optional<EnergyInfo> energy;
  double wall_seconds = 0;              ///< from the program's start to the end of its checks
  std::vector<KernelRow> kernels;       ///< the longest first; empty unless they were timed
  std::optional<ServersInfo> servers;   ///< none unless workers do not wait for each other
  std::optional<PipelineInfo> pipeline; ///< of rank 0's pipeline; none unless it was measured
  std::vector<RankInfo> ranks;
  MeasuredWindow window;
  std::optional<Rate> tokens_per_second; ///< over the window; none if a restart left no step to measure
  std::map<std::string, double> metrics;
  std::vector<Check> checks;
};

/// Steps of the window.
std::vector<StepReport> measured_steps(Result const& result);
/// Their times.
std::vector<double> measured_seconds(Result const& result);
/// Tokens that they trained on: none of a step that was skipped.
double trained_tokens(Result const& result);
/// trained_tokens() divided by their time; nothing if there is no measured step.
std::optional<Rate> rate_of_window(Result const& result);

/// The amounts that a run would need, for the rank that needs most.
/// The largest value of a key with which a run fits into the given memory.
struct LargestValue {
  std::string key;
  std::optional<std::int64_t> value = {};        ///< nothing: none fits, or there is none to search for
  std::vector<std::string> settings = {};        ///< that --set takes: the key, and others that follow it
  std::optional<std::uint64_t> needed = {};      ///< bytes, with the value
  std::optional<std::int64_t> next = {};         ///< legal value; nothing: none, or it is too large to be counted
  std::optional<std::uint64_t> next_needed = {}; ///< bytes, with it
};

struct Estimate {
  std::vector<Parameter> parameters; ///< resolved_parameters
  std::string deck;                  ///< deck_label
  std::string deck_hash;
  CodeInfo code;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  std::int64_t model_parameters = 0;        ///< without padding
  std::int64_t tokens_per_step = 0;         ///< of the global batch
  WorkAmounts predicted;                    ///< memory of the rank that needs most, the rest of the one that sends most
  std::uint64_t needed_bytes = 0;           ///< of the memory that kernels work on
  std::optional<std::uint64_t> given_bytes; ///< nothing: not asked whether it fits
  std::optional<double> compute_seconds;    ///< of a step, where a machine is known
  std::optional<double> communication_seconds;   ///< of a step, which computation does not cover
  std::optional<std::string> predicted_from;     ///< "parts" or "peaks": what the seconds come from
  std::optional<double> exposed_offload_seconds; ///< of a step's, as in metrics of result.json
  std::vector<LargestValue> largest;             ///< where bytes are given
};

/// Compiler name and version of this build.
std::string describe_compiler();

/// CPU, memory and the listed environment variables of this process; `cores`, `mpi` and `device` are left to the
/// caller.
MachineInfo describe_machine();

/// Makes the folder, proves that a file can be written there and removes an older result. On failure it removes empty
/// folders that it has made. Called before the training.
/// \return  the lock of the folder, which the run keeps until its end \throws InputError, also if another run has it
[[nodiscard]] FolderLock prepare_output_folder(std::string const& folder);

/// The result as JSON text.
std::string result_json(Result const& result);

/// The estimate as JSON text, with the names of a result.
std::string estimate_json(Estimate const& estimate);

/// Writes `folder`/result.json under a temporary name, then renames it. Returns the path.
std::string write_result(std::string const& folder, Result const& result);

} // namespace trainstone
