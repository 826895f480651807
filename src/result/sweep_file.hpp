#pragma once

// Predicted steps of a deck by numbers of ranks, read from the file of `estimate --sweep --json`. Strict.

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

class JsonFile;

struct SweepFileRow {
  std::int64_t ranks = 1, nodes = 1;
  std::int64_t tensor = 1, data = 1, pipeline = 1;
  std::int64_t samples = 1; ///< of a step
  std::uint64_t needed = 0; ///< bytes of memory of the rank that needs most
  std::uint64_t sent = 0;   ///< bytes of the rank that sends most
  double seconds = 0;       ///< of a step
  double efficiency = 0;    ///< rate per rank, by that of the first row
};

struct SweepFile {
  std::string path, deck, machine;
  bool strong = false; ///< the batch of all ranks stays; else that of a rank
  std::vector<SweepFileRow> rows;
};

/// \param[in] file  whose /kind is "sweep"
/// \throws InputError  naming the file and what is wrong
SweepFile read_sweep(JsonFile const& file);

} // namespace trainstone
