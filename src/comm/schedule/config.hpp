#pragma once

// The configuration of communication, and which keys name the algorithm of which collective. Plain values.

#include "comm/schedule/emulated_network.hpp"
#include "comm/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainstone {

/// Instead of an algorithm: the fastest one on the run's ranks, as measured when the run starts.
inline constexpr std::string_view algorithm_measured = "measured";

struct CommConfig {
  std::string allreduce = "auto";        ///< auto: ring, or ordered where parallel.reduction = "ordered"
  std::string tensor_allreduce = "auto"; ///< between tensor ranks, as the next two; auto: as above and below
  std::string tensor_reduce_scatter = "auto";
  std::string tensor_all_gather = "auto";
  std::string reduce_scatter = "auto";
  std::string all_gather = "auto"; ///< auto: ring
  std::string reduce = "auto";     ///< auto: binomial, linear with naive, ordered with reduction = "ordered"
  std::string broadcast = "auto";  ///< auto: binomial, or linear with strategy naive
  std::string buffers = "auto";    ///< memory that MPI gets (comm/schedule/message_buffers.hpp); auto: resolve_buffers
  std::int64_t expected_ranks = 0; ///< refuse to run with another number of ranks; 0 = any
  bool check_order = false;        ///< compare every call of a collective between all ranks
  std::int64_t emulated_nodes = 0; ///< treat the ranks as if they sat on this number of nodes; 0 = real nodes
  double emulated_latency = 0;     ///< s, of each message; 0 = the real network
  double emulated_bandwidth = 0;   ///< bytes/s, of each rank; 0 = the real network
  double emulated_inside_latency = 0;   ///< s, of each message inside a node; both 0: as of the other messages
  double emulated_inside_bandwidth = 0; ///< bytes/s
  bool emulated_node_port = false;      ///< the ranks of a node share one connection to other nodes

  EmulatedNetwork emulated_network() const {
    auto const link = [](double latency, double bandwidth) {
      return EmulatedLink{latency, bandwidth > 0 ? 1 / bandwidth : 0};
    };
    EmulatedLink const between = link(emulated_latency, emulated_bandwidth);
    EmulatedLink const inside = link(emulated_inside_latency, emulated_inside_bandwidth);
    return {{inside.is_slow() ? inside : between, between}, emulated_node_port};
  }
};

/// Where a configuration keeps an algorithm's name. With a name of its own, because g++ warns of what nvcc makes of it
/// otherwise.
using AlgorithmMember = std::string CommConfig::*;

/// A key of a deck that names the algorithm of a collective.
struct AlgorithmKey {
  char const* name; ///< "comm.allreduce"
  Collective collective;
  AlgorithmMember member;
  bool of_tensor_ranks = false; ///< who add up what they compute; else of ranks that share the training state
};

/// All of them. No two are of the same collective between the same ranks.
inline constexpr std::array algorithm_keys{
    AlgorithmKey{"comm.allreduce", Collective::all_reduce, &CommConfig::allreduce},
    AlgorithmKey{"comm.tensor_allreduce", Collective::all_reduce, &CommConfig::tensor_allreduce, true},
    AlgorithmKey{"comm.tensor_reduce_scatter", Collective::reduce_scatter, &CommConfig::tensor_reduce_scatter, true},
    AlgorithmKey{"comm.tensor_all_gather", Collective::all_gather, &CommConfig::tensor_all_gather, true},
    AlgorithmKey{"comm.reduce_scatter", Collective::reduce_scatter, &CommConfig::reduce_scatter},
    AlgorithmKey{"comm.all_gather", Collective::all_gather, &CommConfig::all_gather},
    AlgorithmKey{"comm.reduce", Collective::reduce, &CommConfig::reduce},
    AlgorithmKey{"comm.broadcast", Collective::broadcast, &CommConfig::broadcast},
};

/// The key of a collective between tensor ranks, or between ranks that share the training state. Null: there is none.
constexpr AlgorithmKey const* find_algorithm_key(Collective collective, bool of_tensor_ranks) {
  auto const* const found = std::ranges::find_if(algorithm_keys, [=](AlgorithmKey const& key) {
    return key.collective == collective && key.of_tensor_ranks == of_tensor_ranks;
  });
  return found == algorithm_keys.end() ? nullptr : found;
}

/// Whether a key's value is an algorithm. If not, it leaves the choice open: "auto" or "measured".
inline bool names_algorithm(std::string_view value) { return value != "auto" && value != algorithm_measured; }

/// The configuration with an algorithm for a key. \param[in] key  a name in algorithm_keys; another one changes nothing
inline CommConfig with_algorithm(CommConfig config, std::string_view key, std::string_view algorithm) {
  auto const found = std::ranges::find(algorithm_keys, key, &AlgorithmKey::name);
  if (found != algorithm_keys.end()) config.*found->member = algorithm;
  return config;
}

} // namespace trainstone
