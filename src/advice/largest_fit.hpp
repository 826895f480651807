#pragma once

// The largest micro-batch, number of layers and width that fit into a memory. Searches among complete plans: needs more
// memory for more of each, so a bisection finds the largest. Owns the search and what stays as it is meanwhile. Pure.

#include "advice/deck_on_ranks.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// The largest number from 1 to `most` for which `holds` is true; nothing if it is false for 1. Gallops, then bisects.
/// \param[in] holds  true up to some number, and false from there on     Complexity: O(log of the answer) calls.
std::optional<std::int64_t> largest_that(std::int64_t most, std::function<bool(std::int64_t)> const& holds);

/// A key of the deck at a value, and the memory that the fullest rank needs then.
struct SizedKey {
  std::int64_t value = 0;
  std::vector<std::string> keys; ///< that --set takes
  std::uint64_t needed = 0;      ///< bytes of the memory that kernels work on
};

struct LargestFit {
  std::string key;                ///< "batch.micro"
  std::string kept;               ///< what else changes with it, and what stays: "batch.global follows"
  std::string refused = {};       ///< why there is none to search for; else empty
  std::int64_t step = 1;          ///< between values that are legal
  std::optional<SizedKey> fits;   ///< nothing: not even the smallest one
  std::optional<SizedKey> beyond; ///< the next legal value; nothing: it cannot be counted, or is no legal value
};

/// batch.micro (the accumulation stays, batch.global follows), model.layers, and model.channels (the size of a head
/// stays, model.heads follows). \param[in] memory  bytes per rank
/// Complexity: some tens of plans of the ranks that may need most.
std::vector<LargestFit> largest_fits(DeckOnRanks const& asked, std::uint64_t memory);

/// Bytes of the memory that kernels work on, of the rank that needs most. \throws InputError if it cannot run
std::uint64_t needed_memory(DeckOnRanks const& asked);

/// A line for each.
std::string largest_fits_text(std::vector<LargestFit> const& fits);

} // namespace trainstone
