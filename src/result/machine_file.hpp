#pragma once

// peaks.json: a measured machine as a file, written by calibrate, read by everything that predicts. Owns its form
// (schema_version) and what it says about where the figures come from. Promises: a reader sees the whole file or none;
// what is read equals what was written, to the last bit; a damaged file is refused with its name, what is wrong and
// what would be right.

#include "comm/prediction/fitted_machine.hpp"
#include "comm/schedule/message_buffers.hpp"
#include "core/files_of_ranks.hpp"
#include "parallel/program/offload_prediction.hpp"
#include "parallel/program/part_times.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace trainstone {

/// Where and how a machine was measured.
struct MachineProvenance {
  std::string time; ///< UTC, "2000-01-01T00:00:00Z"
  std::string host;
  std::string cpu;  ///< describe_machine().cpu
  std::string mpi;  ///< "MPICH 5.0.2"
  std::string code; ///< "0.1.0 git 1a2b3c4d"
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;                        ///< emulated ones count
  MessageBuffers buffers = MessageBuffers::host; ///< what MPI was given; host memory where a file does not say

  bool operator==(MachineProvenance const&) const = default;
};

/// The times of a deck's parts, and what they depend on.
struct MeasuredParts {
  std::map<std::string, std::string> conditions; ///< part_conditions() of the deck
  std::int64_t threads = 1;                      ///< of a rank
  std::int64_t layers = 0;                       ///< blocks of the model that was measured
  PartTimes times;

  bool operator==(MeasuredParts const&) const = default;
};

struct MeasuredMachine {
  FittedMachine fit;
  MachineProvenance provenance;
  std::optional<double> gemm_flops_per_second;      ///< of one rank, fp32
  std::optional<double> bandwidth_bytes_per_second; ///< of one rank while all ranks of its node measure
  std::optional<MeasuredParts> parts;               ///< while all ranks measure
  std::optional<OffloadRates> offload;              ///< while all ranks measure
  std::optional<FilesOfRanks> files;                ///< that these rates are of; older files do not say
  Interconnect network;                             ///< as its owner describes it: it is not measured
};

/// Host, CPU and time of here and now; the rest is left to the caller.
MachineProvenance describe_here();

/// The file's text. \throws Error if a figure is not finite
std::string machine_json(MeasuredMachine const& machine);

/// Under a temporary name, then renamed. \throws Error with the system's reason
void write_machine_file(std::string const& path, MeasuredMachine const& machine);

/// \throws InputError naming the file, the field, and what would be right
MeasuredMachine read_machine_file(std::string const& path);

/// Why the times of parts do not hold for a deck: the first condition that differs. Empty if they hold.
std::string parts_differ(MeasuredParts const& parts, std::map<std::string, std::string> const& conditions);

/// One line about a machine for headers of tables:
/// "peaks.json: 2 ranks on 1 node of HOST (CPU), MPICH 5.0.2, buffers host, 2000-01-01".
std::string machine_line(std::string const& path, MeasuredMachine const& machine);

} // namespace trainstone
