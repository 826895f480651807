#pragma once

// Benchmark classes: problems with a name, so that results of different machines are of the same work. Owns what each
// class says of a deck's keys, and the judgement whether a run is of the class that its deck names. A class fixes the
// keys that a loss curve depends on (report/deck.hpp: loss_curve_keys); of all others it may give defaults. Does not
// know how values are read or checked: a class is a text in the form of a deck.

#include "report/toml_reader.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// The values of the key `class`; custom gives no values.
inline constexpr std::array<char const*, 5> class_names{"tiny", "small", "reference", "large", "custom"};

/// What a run counts as.
struct ClassJudgement {
  std::string name = "custom";
  std::vector<std::string> departures; ///< why not the class that the deck names: "data.steps = 9 instead of 20"
};

/// The deck's class, or custom with the keys that depart from it. The deck fits the number of ranks.
ClassJudgement judge_class(Deck const& deck, std::int64_t ranks);

namespace Impl {

/// What the class that `given` names (the last one, if several) says, with its origin: all that `given` is not to be
/// the only one to say. E.g. with a preset of one's own the class' shape is left out.
std::vector<Setting> class_settings(std::vector<Setting> const& given);

} // namespace Impl

} // namespace trainstone
