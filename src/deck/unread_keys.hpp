#pragma once

// Keys that are read only if another key has certain values: one table, unread_keys.cpp. A deck that gives a key which
// nothing reads is refused, so that no deck seems to choose what it does not choose.

#include "train/plan/run_config.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace trainstone {

/// The reason why a key of the deck has no effect: the choice that does not read it, and the choices that do.
struct UnreadKey {
  std::string choice;  ///< "optimizer.type"
  std::string readers; ///< "optimizer.type = \"adamw\" or \"adam\""
  bool has_a_check;    ///< a check between keys refuses the key, and says which values are legal
};

/// Nothing if the configuration reads the key.
std::optional<UnreadKey> find_unread(RunConfig const& config, std::string_view key);

} // namespace trainstone
