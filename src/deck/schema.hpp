#pragma once

// The keys of a deck: one table, whose rows are in the files that key_sections.hpp names. Adding a key is adding a row.
// Knows nothing of TOML.

#include "deck/key.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// All keys, grouped by section.
std::vector<Key> const& deck_keys();

Key const* find_key(std::string_view name);

/// Whether some key lies in this section or a section below it.
bool is_section(std::string_view name);

/// The known key that a misspelt one most likely means.
std::optional<std::string> nearest_key(std::string_view name);

/// The known section that a misspelt one most likely means.
std::optional<std::string> nearest_section(std::string_view name);

} // namespace trainstone
