#pragma once

// Ways to distribute a product of matrices, read from the file of `matmul --json`. Strict.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

class JsonFile;

/// Counts are of the busiest rank, and of the one that keeps most.
struct ProductFileRow {
  std::string algorithm;
  std::vector<std::int64_t> grid; ///< x, y and z
  std::uint64_t messages = 0, sent = 0, kept = 0;
  std::uint64_t predicted_messages = 0, predicted_sent = 0, predicted_kept = 0;
  double bound = 0; ///< bytes that some rank of any product sends
  bool right = false;
  std::optional<double> seconds = {}; ///< median; nothing unless the row is right
  std::optional<double> predicted_seconds = {}, flops_per_second = {};
};

struct ProductFile {
  std::string path, version, cpu, machine, type, gemm;
  std::int64_t ranks = 1, nodes = 1;
  bool emulated_nodes = false;
  std::int64_t m = 1, n = 1, k = 1;
  std::vector<ProductFileRow> rows;
};

/// \param[in] file  whose /kind is "matmul"
/// \throws InputError  naming the file and what is wrong
ProductFile read_product(JsonFile const& file);

} // namespace trainstone
