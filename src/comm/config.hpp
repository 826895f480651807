#pragma once

// What a deck may say about communication. A plain value.

#include "comm/out_port.hpp"

#include <cstdint>
#include <string>

namespace trainstone {

struct CommConfig {
  std::string allreduce = "auto"; ///< auto: ring, or ordered where parallel.reduction = "ordered"
  std::string reduce_scatter = "auto";
  std::string all_gather = "auto"; ///< auto: ring
  std::string reduce = "auto";     ///< auto: binomial, linear of naive, or ordered where parallel.reduction = "ordered"
  std::string broadcast = "auto";  ///< auto: binomial, or linear of naive
  std::string buffers = "auto";    ///< what MPI is given (comm/message_buffers.hpp); auto: resolve_buffers
  std::int64_t expected_ranks = 0; ///< refuse to run with another number of ranks; 0 = any
  bool check_order = false;        ///< compare every call of a collective between all ranks
  std::int64_t emulated_nodes = 0; ///< take the ranks to sit on so many nodes; 0 = as they do
  double emulated_latency = 0;     ///< s, of each message on a slower network; 0 = the machine's
  double emulated_bandwidth = 0;   ///< bytes/s, of each rank; 0 = the machine's

  EmulatedNetwork emulated_network() const {
    return {emulated_latency, emulated_bandwidth > 0 ? 1 / emulated_bandwidth : 0};
  }
};

} // namespace trainstone
