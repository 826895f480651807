#pragma once

// What a distributed product sends and keeps, and what no product can do without. Pure functions.

#include "products/plan/product.hpp"

#include "comm/schedule/counters.hpp"
#include "comm/schedule/message_buffers.hpp"
#include "comm/simulation/machine_model.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace trainstone {

/// Bytes of an element, and what MPI is given. Sums are kept wider than what is multiplied.
struct ProductBytes {
  std::size_t inputs = sizeof(float);            ///< of A and B
  std::size_t sums = sizeof(float);              ///< of C
  MessageBuffers buffers = MessageBuffers::host; ///< staged messages are cut, and copied

  std::size_t of(Operand operand) const { return operand == Operand::c ? sums : inputs; }
};

/// This rank's schedule of an exchange.
Schedule schedule_of(ProductPlan const& plan, ProductStep const& step);

/// What the rank of this plan will send, counted from its schedules.
Traffic predict_product_traffic(ProductPlan const& plan, ProductBytes const& bytes);

/// Seconds that the exchanges of this rank's lines and its copies take on a modelled machine, one after the other and
/// without the products. Lines that exchange at the same time are taken not to disturb each other.
double predict_exchange_seconds(ProductPlan const& plan, ProductBytes const& bytes, MachineModel const& machine);

/// Elements that the rank of this plan keeps: its parts of A, B and C, room for what it gathers, and the scratch of one
/// exchange at a time.
Index product_memory(ProductPlan const& plan);

/// Bytes that the rank of this plan allocates: the same, each tensor rounded up to 64 bytes, with copies of one
/// exchange's messages where they are staged. \param[in] gemm_scratch  what the provider of products wants
std::uint64_t predict_product_bytes(ProductPlan const& plan, ProductBytes const& bytes, std::uint64_t gemm_scratch);

/// In elements, of the rank that sends most, the one that sends most messages, and the one that keeps most.
struct BusiestProductRank {
  Index messages = 0, sent = 0, kept = 0;
};
/// Counted from the schedules of all ranks. Complexity: ranks times exchanges of a rank.
BusiestProductRank count_busiest(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size);

/// Elements that some rank must send or receive at least, if no rank begins or ends with more than 1/P of A, B and C
/// and each does 1/P of the products. Source: Al Daas et al., Tight memory-independent parallel matrix multiplication
/// communication lower bounds (2022).
double product_lower_bound(ProductSize const& size, Rank ranks);

/// What grids of as many ranks are compared by, where the user chooses none: what the busiest rank sends times the
/// number of ranks, if blocks are even, then the number of messages.
std::pair<Index, Index> grid_cost(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size);

/// The box of so many ranks with which Agarwal's algorithm costs least.
ProductGrid best_grid(ProductSize const& size, Rank ranks);

} // namespace trainstone
