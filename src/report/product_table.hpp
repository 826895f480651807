#pragma once

// The output of matmul: one row per way to distribute the product. Owns the columns and the derived figures. Pure:
// measures nothing. Promises: a result that was not exact, or was not counted as predicted, has no time and no rate.

#include "products/plan/product.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

struct ProductHeader {
  std::string version, mpi, cpu, kokkos;
  std::string buffers; ///< "host", "staged" or "device"
  std::string machine; ///< where predictions come from
  std::string timing;
  std::int64_t ranks = 1, nodes = 1;
  bool emulated_nodes = false;
  ProductSize size;
  std::string type; ///< of A and B
  std::string gemm;
};

/// Of the busiest rank, and of the one that keeps most.
struct ProductCounts {
  std::uint64_t messages = 0; ///< sent
  std::uint64_t sent_bytes = 0;
  std::uint64_t kept_bytes = 0;
  bool operator==(ProductCounts const&) const = default;
};

struct ProductRow {
  std::string name; ///< "3d"
  ProductGrid grid;
  ProductCounts predicted, counted;
  std::int64_t unlike = 0;     ///< ranks whose own counts are not the predicted ones
  double bound_bytes = 0;      ///< that some rank of any product sends, if its elements are as narrow as A's
  std::vector<double> seconds; ///< samples, per call: the slowest rank; sample i of all rows was measured in pass i
  std::vector<double> multiply_seconds; ///< the same of the local products alone
  double exchange_seconds = 0;          ///< predicted, of exchanges and copies
  std::int64_t wrong = 0;               ///< elements of all ranks' parts of C, over both checks

  bool is_right() const { return wrong == 0 && unlike == 0; }
  /// Predicted exchanges and measured products; nothing before there are samples.
  std::optional<double> predicted_seconds() const;
  /// predicted / measured - 1; nothing unless the row is right.
  std::optional<double> residual() const;
};

/// Lines, each with its end and beginning with "#".
std::string product_header_lines(ProductHeader const& header);
/// With the names of the columns.
std::string product_table(ProductSize const& size, std::vector<ProductRow> const& rows);
/// Everything as JSON text, samples included. Times in seconds, sizes in bytes.
std::string product_json(ProductHeader const& header, std::vector<ProductRow> const& rows,
                         std::vector<std::string> const& left_out);

} // namespace trainstone
