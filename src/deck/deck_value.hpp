#pragma once

// The value of one key of a deck, whatever its type, and its form in TOML.

#include "core/quantity.hpp"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace trainstone {

using DeckValue =
    std::variant<std::int64_t, double, bool, std::string, Quantity, std::vector<double>, std::vector<std::string>>;

/// The value in TOML syntax; numbers with the fewest digits that read back the same, quantities as strings.
std::string to_toml(DeckValue const& value);

} // namespace trainstone
