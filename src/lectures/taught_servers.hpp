#pragma once

// Parameter servers as lectures teach them, beside what this program counts and simulates: the bottleneck, the order of
// layers on a worker's link, and what asynchrony does about stragglers. Owns the taught figures. Orders and clocks are
// parallel/servers'. Pure; renders no text (lectures/lecture_servers.hpp).
// Source: Scaling Distributed Machine Learning with the Parameter Server, 2014; Priority-based Parameter Propagation
// for Distributed DNN Training, arXiv:1905.03960; More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server, 2013.

#include "parallel/servers/planned_order.hpp"
#include "parallel/servers/transfer_order.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// One step of N workers with M bytes of parameters and K servers: a push of gradients, a pull of parameters.
struct ServersRow {
  Rank servers;
  std::uint64_t worker_sent, server_sent; ///< bytes
  std::uint64_t all_sent;                 ///< of all workers and servers
  double taught_seconds;                  ///< M N / B: one direction, of one server
  double push_seconds, step_seconds;      ///< simulated: of the push, and of both
};

/// The time from the begin of backward to the end of the next forward, of layers that are all alike.
struct TransfersRow {
  Index layers;
  LayerTimes times;
  std::int64_t fifo, whole_layers, slices; ///< simulated: first in first out; by priority, whole and in slices
  std::int64_t least;                      ///< no order takes less
};

/// Workers of which some are slow, under one rule.
struct StragglersRow {
  std::string stragglers;         ///< "none", "one takes 4 times as long"
  std::optional<Index> staleness; ///< none: asynchronous
  double pushes;                  ///< of all workers, in the time in which a usual worker computes one
  std::optional<double> formula;  ///< what closed forms say: N / longest time, or the sum of 1 / time
  Index largest_gap;              ///< between clocks, at an answer
  Index largest_staleness;        ///< of a push, in updates by others
  std::optional<Index> staleness_bound;
  double waiting_share; ///< of all workers' time
};

struct TaughtServers {
  Rank workers = 1;
  double bytes = 0, bandwidth = 0; ///< M, B
  std::vector<ServersRow> counts;
  std::vector<LayerTimes> layers; ///< the slide's three
  TransferTimeline fifo, priority;
  std::vector<TransfersRow> transfers;
  Rank racing_workers = 1;
  std::vector<StragglersRow> stragglers;
};

/// \param[in] workers  1 to most_taught_workers
/// \throws InputError for another number
TaughtServers compare_taught_servers(Rank workers);
inline constexpr Rank most_taught_workers = 64;

} // namespace trainstone
