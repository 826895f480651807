#pragma once

// Keys that are read only where another key has certain values: one table, unread_keys.cpp. Given where nothing reads
// them they are refused, so that no deck believes to choose what it does not.

#include "train/run_config.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace trainstone {

/// Why a key of the deck has no effect: the choice that does not read it, and those that do.
struct UnreadKey {
  std::string choice; ///< "optimizer.type"
  std::string others; ///< "\"adamw\" or \"adam\""
};

/// Nothing if the configuration reads the key.
std::optional<UnreadKey> find_unread(RunConfig const& config, std::string_view key);

} // namespace trainstone
