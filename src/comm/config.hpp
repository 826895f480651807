#pragma once

// What a deck may say about communication. A plain value.

#include <cstdint>
#include <string>

namespace trainstone {

struct CommConfig {
  std::string allreduce = "auto"; ///< auto: ring, or ordered where parallel.reduction = "ordered"
  std::string reduce_scatter = "auto";
  std::string all_gather = "auto"; ///< auto: ring
  std::int64_t expected_ranks = 0; ///< refuse to run with another number of ranks; 0 = any
  bool check_order = false;        ///< compare every call of a collective between all ranks
};

} // namespace trainstone
