#pragma once

// Benchmark classes: problems with a name, so that results of different machines are of the same work. Owns what each
// class says of a deck's keys, the judgement whether a run is of the class that its deck names, and what proves its
// losses. A class fixes the keys that a loss curve depends on (report/deck.hpp: loss_curve_keys); of all others it may
// give defaults. A run of it also keeps the rules of inputs/RUN_RULES.md that a program can see. Does not know how
// values are read or checked: a class is a text in the form of a deck.

#include "report/toml_reader.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// The values of the key `class`; custom gives no values.
inline constexpr std::array<char const*, 5> class_names{"tiny", "small", "reference", "large", "custom"};

/// What a run counts as.
struct ClassJudgement {
  std::string name = "custom";
  std::vector<std::string> departures; ///< why not the class that the deck names: "data.steps = 9 instead of 20"
};

/// How a run came to its rate.
struct RunConditions {
  MeasuredWindow window;       ///< of the run: after a restart a later one than the deck's
  std::string sharing_ranks{}; ///< who share cores or a device: "2 ranks share a device"; empty: nobody
};

/// The deck's class, or custom with the keys that depart from it: what work it is. The deck fits the number of ranks.
ClassJudgement judge_class(Deck const& deck, std::int64_t ranks);

/// The same of a run, which counts as of its class only if its rate was also measured by the rules: after the class'
/// warm-up at least, over at least half of the steps that follow that, without what takes time for itself
/// (bench.kernels, comm.check_order), by ranks with cores or devices of their own.
ClassJudgement judge_run(Deck const& deck, std::int64_t ranks, RunConditions const& conditions);

/// Whether a run of the class (or custom) is compared with enough to be VALID: a curve is, of any; the loss before the
/// first update alone of the classes that are too large for a curve. It says nothing of gradients and updates.
bool is_referenced(std::string_view class_name, bool has_curve, bool has_first_step);

namespace Impl {

/// What the class that `given` names (the last one, if several) says, with its origin: all that `given` is not to be
/// the only one to say. E.g. with a preset of one's own the class' shape is left out.
std::vector<Setting> class_settings(std::vector<Setting> const& given);

} // namespace Impl

} // namespace trainstone
