#pragma once

// The places of ranks: the map that a run prints and records, so that users see a wrong binding. Does not bind.

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// Where one rank runs.
struct RankPlace {
  std::string host;
  std::string cores;  ///< that its threads may run on: "0-3,8"
  std::string device; ///< its bus; empty: kernels run on the host
  bool operator==(RankPlace const&) const = default;
};

/// The numbers as ranges: "0-3,8". \param[in] numbers  ascending
std::string number_ranges(std::vector<std::int64_t> const& numbers);

/// Number of cores that these places of one host have together. If the cores of a place are not known, as from a text
/// that number_ranges() does not write, the largest number.
std::int64_t count_cores(std::vector<RankPlace> const& places);

/// Number of ranks on the fullest device; 0: kernels run on the host.
std::int64_t ranks_per_device(std::vector<RankPlace> const& places);

/// "4 threads on 2 cores", for the host with most threads per core. Empty if every thread has its own core, or if
/// kernels run on devices.
std::string shared_cores(std::vector<RankPlace> const& places, std::int64_t threads_per_rank);

/// A line per run of ranks at the same place: "ranks 0-1 on n7, cores 0-1". At most `most` lines, then one that says
/// how many ranks follow. \param[in] places  by rank
std::string rank_map_lines(std::vector<RankPlace> const& places, std::size_t most = 8);

} // namespace trainstone
