#pragma once

// Benchmark classes: problems with a name, so that results of different machines are results of the same work. Owns the
// values that each class gives to keys, the judgement whether a run belongs to the class that its deck names, and the
// rule which reference a class needs. A class fixes the keys that a loss curve depends on (deck/deck.hpp:
// loss_curve_keys). For other keys it may give defaults. A run of the class also keeps the rules of inputs/RUN_RULES.md
// that a program can check. Does not know how values are read or checked: a class is a text in the form of a deck.

#include "deck/toml_reader.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// The values of the key `class`; custom gives no values.
inline constexpr std::array<char const*, 5> class_names{"tiny", "small", "reference", "large", "custom"};

/// The class that a run belongs to.
struct ClassJudgement {
  std::string name = "custom";
  std::vector<std::string> departures; ///< why not the class that the deck names: "data.steps = 9 instead of 20"
};

/// The conditions under which the rate of a run was measured.
struct RunConditions {
  MeasuredWindow window;       ///< of the run: after a restart a later one than the deck's
  std::string sharing_ranks{}; ///< who share cores or a device: "2 ranks share a device"; empty: nobody
};

/// The class of the deck's work: the class that the deck names, or custom with the keys that depart from the class. The
/// deck must fit the number of ranks.
ClassJudgement judge_class(Deck const& deck, std::int64_t ranks);

/// The class of a run. It is the class of its deck only if the rate was measured by the rules. The warm-up is at least
/// that of the class. At least half of the steps after the class' warm-up are measured. Keys that take time
/// (bench.kernels, bench.pipeline, comm.check_order) are off. Ranks share neither cores nor devices.
ClassJudgement judge_run(Deck const& deck, std::int64_t ranks, RunConditions const& conditions);

/// Whether the references suffice for a VALID run of the class (or custom). A curve suffices for every class. A first
/// update suffices only for classes that are too large for a curve. The loss before it never suffices alone, because it
/// says nothing about gradients and updates.
bool is_referenced(std::string_view class_name, bool has_curve, bool has_first_update);

namespace Impl {

/// The settings of the class that `given` names (of the last one, if there are several), with their origin. Settings
/// that `given` replaces are left out: for example, a preset in `given` replaces the shape of the class.
std::vector<Setting> class_settings(std::vector<Setting> const& given);

} // namespace Impl

} // namespace trainstone
