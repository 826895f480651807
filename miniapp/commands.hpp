#pragma once

// The commands of the program. Each command gets its options and returns its exit code. Errors leave as exceptions;
// main() prints them and chooses the exit code.

#include "comm/execution/buffers_start.hpp"
#include "comm/execution/communicator.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/environment.hpp"
#include "core/views.hpp"
#include "deck/deck.hpp"
#include "train/verification/reference_check.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// The options that commands share.
struct CommonOptions {
  DeckInput deck;
  std::string output_folder = "out";
};

struct RunOptions {
  CommonOptions common;
  bool record_golden = false;
  std::optional<double> max_time;             ///< s
  std::optional<std::uint64_t> device_memory; ///< bytes per rank
};

struct EstimateOptions {
  CommonOptions common;
  std::optional<std::int64_t> ranks;          ///< 1 if not given; 8 with a lecture, 64 with that of matmul
  std::optional<std::uint64_t> device_memory; ///< bytes per rank
  std::string lecture;                        ///< empty: a deck is estimated
  std::optional<std::uint64_t> size;          ///< with a lecture: bytes
  std::optional<std::int64_t> stages;         ///< with a lecture: of a pipeline
  std::optional<std::int64_t> micro_batches;  ///< with a lecture: of a step
  std::string machine_file;                   ///< of a lecture or a step's time; empty: figures are assumed, or no time
  std::int64_t nodes = 1;                     ///< with a deck: number of nodes; ranks sit on them in blocks
  std::vector<double> peaks;                  ///< with a deck: TFLOP/s and GB/s; empty: kernels are not listed
  std::string json_file;                      ///< with a deck; empty: none
  std::string sweep;                          ///< with a deck: "ranks=8..65536"; empty: none
  bool strong = false;                        ///< of a sweep: the batch stays
  bool advise = false;                        ///< with a deck: which of all ways to run it is the fastest
  std::int64_t top = 10;                      ///< of advice: ways that are printed
  std::int64_t check = 0;                     ///< of advice: ways that are run; 0: none
  std::string launcher = "mpiexec";           ///< of these runs
};

struct VerifyOptions {
  CommonOptions common;
  ReferenceFiles files;
  bool matrix = false; ///< compare strategies instead: also where nothing is named
  bool mesh = false;   ///< on stages of pipelines
  bool quick = false;  ///< some of them
  std::string replay;  ///< result whose training is repeated; empty: none
};

struct FirstStepOptions {
  CommonOptions common;
  std::optional<std::int64_t> positions; ///< of the first sample, from its beginning; all if not given
  std::optional<int> threads;            ///< as many as the process may use, if not given
};

struct ExportOptions {
  std::string checkpoint; ///< folder
  std::string file;       ///< of llm.c, to be written
};

struct ReportOptions {
  std::vector<std::string> paths; ///< results, folders of results, files of commbench, studies
  std::string golden;             ///< file of golden curves; empty: a study's deck has its own
  std::string machine_file;       ///< predicts the steps of results; empty: none
  std::string output_folder = "report";
};

/// The machine under a command that runs on all ranks.
struct RankContext {
  MpiEnvironment const& mpi;
  Communicator& communicator;
  ExecutionSpace exec;
};

int run(RunOptions const& options, RankContext& context);
int verify(VerifyOptions const& options, RankContext& context);
int verify_matrix(VerifyOptions const& options, RankContext& context);
int verify_replay(VerifyOptions const& options, RankContext& context);
/// The keys that verify takes, from --set and TRAINSTONE_SET, read and checked as in a run. \param[in] model_file of
/// llm.c, whose shape the deck has; empty: any
RunConfig read_choices(DeckInput const& input, std::string const& model_file);
// Commands of one process, without MPI; estimate_lecture reads no deck.
int estimate(EstimateOptions const& options);
int verify_first_step(FirstStepOptions const& options);
int export_checkpoint(ExportOptions const& options);
int estimate_lecture(EstimateOptions const& options);
/// Of all lectures, in the order in which messages list them.
std::string lecture_names(std::string_view separator);
int estimate_sweep(EstimateOptions const& options);
int estimate_advice(EstimateOptions const& options);
int report(ReportOptions const& options);

/// Chooses the buffers of this communicator: as the deck's `name` says, with auto as MPI allows. Says whether its
/// kernels reach the memory of neighbours. Collective.
/// \return what was found about devices \throws CollectiveError (exit 64) if these buffers are impossible
DeviceFindings use_chosen_buffers(Communicator& communicator, std::string const& name, ExecutionSpace const& exec);
/// The same with what was found before.
void use_chosen_buffers(Communicator& communicator, std::string const& name, ExecutionSpace const& exec,
                        DeviceFindings const& found);
/// \throws CollectiveError (exit 69) on all ranks if the configuration names an algorithm of shared memory, and kernels
///         do not reach the memory of neighbours
void require_neighbours_memory(RunConfig const& config, NeighbourMemory const& found);

/// "4.5.1 Serial"
std::string kokkos_description();

} // namespace trainstone
