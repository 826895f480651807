#pragma once

// What a run ends with: its outcome, and rows of amounts that texts and result files share. Plain values.

#include "train/verification/check.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainstone {

/// The outcome of a run. The exit code of `invalid` is 65, of `stopped` 75, of the others 0.
enum class Outcome {
  valid,
  unreferenced, ///< no golden curve, and nothing that suffices instead (deck/benchmark_class.hpp)
  emulated,     ///< its time is not the machine's: an emulated network, an injected delay
  invalid,      ///< a check failed
  stopped,      ///< by a signal or --max-time, with a checkpoint: nothing was verified
};

/// "VALID", "UNREFERENCED", "EMULATED", "INVALID", "STOPPED".
std::string to_string(Outcome outcome);
int exit_code(Outcome outcome);

/// invalid if a check failed, emulated if the time is not the machine's, unreferenced if the references do not suffice
/// (deck/benchmark_class.hpp: is_referenced), else valid.
Outcome judge(std::vector<Check> const& checks, bool is_referenced, bool is_emulated);

/// Amounts by name, in the order to print: memory categories and the like.
using NamedAmounts = std::vector<std::pair<std::string, std::uint64_t>>;

std::uint64_t total(NamedAmounts const& amounts);
/// 0 if there is none of this name.
std::uint64_t amount_of(NamedAmounts const& amounts, std::string const& name);

/// One kernel's part in a step: means over the measured steps of the first rank.
struct KernelRow {
  std::string label;
  double launches = 0, seconds = 0, flops = 0, bytes = 0;
};

/// Energy of the measured steps, on all hosts and devices of a run. A value is missing if a meter is missing.
struct EnergyInfo {
  std::optional<double> host_joules, device_joules;
  double seconds = 0; ///< between the readings, with what happens between steps
  std::int64_t tokens = 0;
};

} // namespace trainstone
