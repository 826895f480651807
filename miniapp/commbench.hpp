#pragma once

// The flags of trainstone commbench and calibrate. Owns the text of the flags, their checks, and the plain options of
// the commands. The value of a flag is kept as text until it is checked, so that a message about a wrong value can list
// the right ones.

#include "comm/execution/buffers_start.hpp"
#include "comm/measurement/buffers_choice.hpp"
#include "comm/schedule/element.hpp"
#include "comm/schedule/problem.hpp"
#include "commands.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trainstone {

/// The flags as typed.
struct CommbenchArguments {
  std::string min_bytes = "8";
  std::string max_bytes = "64M";
  std::string step_bytes; ///< empty: step_factor
  std::string step_factor = "2";
  std::string calls = "0";
  std::string warmup_calls = "8";
  std::string samples = "10";
  std::string check = "1";
  std::string fresh = "1";
  std::string types = "float";
  std::string operation = "sum";
  std::string root = "0";
  std::string servers = "1";
  std::string collectives; ///< empty: all that there are
  std::string algorithms;  ///< empty: all that apply, auto, mpi and nccl
  std::string buffers;     ///< empty: the first of buffers_choices(), but not shared on several nodes
  std::string emulated_nodes = "0";
  std::string machine_file;
  std::string json_file;
  std::string simulate;
  bool check_order = false;
};

struct CalibrateArguments {
  std::string output = "peaks.json";
  std::string max_bytes = "64M";
  std::string buffers; ///< empty: the first of buffers_choices()
  std::string emulated_nodes = "0";
  bool all_sizes = false;
  DeckInput deck; ///< whose parts are measured; without a path: none are
};

/// The options of `commbench --simulate`: schedules are priced, nothing is run.
struct SimulateOptions {
  Rank ranks = 1;
  int nodes = 1;
  std::vector<std::uint64_t> sizes; ///< bytes, ascending
  std::vector<Collective> collectives;
  std::vector<std::string> algorithms; ///< names, each of at least one of the collectives; empty: all
  ElementType type = ElementType::float32;
  Rank root = 0;
  Rank servers = 1;
  std::string machine_file; ///< empty: default_machine()
};

/// The options of a measurement.
struct CommbenchOptions {
  std::vector<std::uint64_t> sizes; ///< bytes, ascending
  std::vector<Collective> collectives;
  std::vector<std::string> algorithms; ///< as in SimulateOptions; "auto", "mpi" and "nccl" may be among them
  std::vector<ElementType> types;
  Operation operation = Operation::sum;
  Rank root = 0;
  Rank servers = 1;
  BuffersChoice buffers = {};
  bool check = true;
  bool fresh = true; ///< data is written before every call, and the result is read after it
  int calls = 0;     ///< per sample; 0: by time
  int warmup_calls = 8;
  int samples = 10;
  std::string machine_file; ///< empty: measured before the first table
  std::string json_file;    ///< empty: none
  bool check_order = false; ///< compare every call between all ranks

  bool names(std::string const& algorithm) const {
    return std::ranges::find(algorithms, algorithm) != algorithms.end();
  }
  bool wants(std::string const& algorithm) const { return algorithms.empty() || names(algorithm); }
};

void describe_commbench(CLI::App& command, CommbenchArguments& arguments);
void describe_calibrate(CLI::App& command, CalibrateArguments& arguments);

/// "64M" = 67108864; K, M and G are powers of 1024, as nccl-tests has them. \throws InputError naming the flag
std::uint64_t parse_size(std::string const& flag, std::string const& text);
/// \throws InputError unless it is an integer from `least` to `most`
std::int64_t parse_count(std::string const& flag, std::string const& text, std::int64_t least, std::int64_t most);

/// Whether ranks on several emulated nodes were asked for, and how many. \throws InputError
int emulated_nodes(std::string const& text);

/// \param[in] found  of prove_device_memory() \throws InputError for the first flag that is wrong
CommbenchOptions check_commbench(CommbenchArguments const& arguments, Topology const& topology,
                                 DeviceFindings const& found);
SimulateOptions check_simulation(CommbenchArguments const& arguments);

int commbench(CommbenchArguments const& arguments, RankContext& context);
int calibrate(CalibrateArguments const& arguments, RankContext& context);
/// One process, without MPI.
int simulate_commbench(SimulateOptions const& options);

} // namespace trainstone
