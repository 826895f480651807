#pragma once

// Measurements of commbench, read from the file of its --json. Strict; leaves out samples and summaries.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

class JsonFile;

struct CommbenchFileRow {
  std::string collective, type, algorithm;
  std::string picked; ///< of auto: what it ran; else empty
  std::uint64_t bytes = 0;
  std::optional<double> seconds;  ///< s: median; nothing: the result was wrong
  std::optional<double> bus_rate; ///< bytes/s; nothing where there is no data, or it was wrong
  std::optional<double> predicted_seconds;
  std::optional<std::uint64_t> wrong; ///< elements; nothing: not checked

  bool is_wrong() const { return wrong && *wrong > 0; }
};

struct CommbenchFile {
  std::string path;
  bool right = true;    ///< every result was
  bool finished = true; ///< no: the measurement was cut off behind these rows
  std::string version, mpi, cpu, kokkos, buffers, predictions, timing;
  std::int64_t ranks = 1, nodes = 1;
  bool emulated_nodes = false;
  std::vector<CommbenchFileRow> rows;
};

/// \param[in] file  whose /kind is "commbench"
/// \throws InputError  naming the file and what is wrong
CommbenchFile read_commbench(JsonFile const& file);

} // namespace trainstone
