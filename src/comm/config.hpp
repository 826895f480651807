#pragma once

// The configuration of communication. A plain value.

#include "comm/out_port.hpp"

#include <cstdint>
#include <string>

namespace trainstone {

struct CommConfig {
  std::string allreduce = "auto"; ///< auto: ring, or ordered where parallel.reduction = "ordered"
  std::string reduce_scatter = "auto";
  std::string all_gather = "auto"; ///< auto: ring
  std::string reduce = "auto";     ///< auto: binomial, linear with naive, ordered with reduction = "ordered"
  std::string broadcast = "auto";  ///< auto: binomial, or linear with strategy naive
  std::string buffers = "auto";    ///< memory that MPI gets (comm/message_buffers.hpp); auto: resolve_buffers
  std::int64_t expected_ranks = 0; ///< refuse to run with another number of ranks; 0 = any
  bool check_order = false;        ///< compare every call of a collective between all ranks
  std::int64_t emulated_nodes = 0; ///< treat the ranks as if they sat on this number of nodes; 0 = real nodes
  double emulated_latency = 0;     ///< s, latency of each message; 0 = the real network
  double emulated_bandwidth = 0;   ///< bytes/s, of each rank; 0 = the real network

  EmulatedNetwork emulated_network() const {
    return {emulated_latency, emulated_bandwidth > 0 ? 1 / emulated_bandwidth : 0};
  }
};

} // namespace trainstone
