#pragma once

// Reads TOML into typed settings of known keys. Owns the diagnostics of what is written: syntax, unknown keys, wrong
// types, illegal values, each with its place. Does not know defaults, precedence or how keys relate to each other.

#include "deck/deck.hpp"
#include "deck/schema.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace trainstone::Impl {

/// One key and the value it was given.
struct Setting {
  Key const* key;
  DeckValue value;
  Origin origin;
};

/// The settings of a deck; `path` names it in messages. \throws InputError "path:line: ..."
std::vector<Setting> read_toml(std::string_view text, std::string const& path);

/// The setting of "section.key=value", from TRAINSTONE_SET or --set as `kind` says. The value is TOML; for a key that
/// is a string the quotes may be left out. \throws InputError
Setting read_override(std::string const& assignment, Origin::Kind kind);

/// "--set batch.micro=4", "TRAINSTONE_SET batch.micro=4", "class tiny" or "path:line", for messages.
std::string place(Origin const& origin, std::string const& path);

} // namespace trainstone::Impl
