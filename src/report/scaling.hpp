#pragma once

// Several results as a function of the number of ranks. Owns the rule which results may be compared: rates and times of
// INVALID or STOPPED runs are left out. Pure functions.

#include "report/report_input.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// A value at a number of ranks: median over repeats, with their range, or with the 95 % interval of the only one.
struct ScalingValue {
  std::int64_t ranks = 1;
  double value = 0, low = 0, high = 0;
  std::size_t repeats = 1;
};

/// The values that results on one line have in common. Nothing else decides about lines: all other values follow the
/// number of ranks, or change no time.
struct LineKey {
  std::string deck;                          ///< its file's name
  std::string rates;                         ///< "FOM", "FOM_EMULATED"; in a study "FOM and FOM_UNREFERENCED" is one
  std::map<std::string, std::string> values; ///< by what they are of, each as legends say it: "2 threads per rank"
  auto operator<=>(LineKey const&) const = default;
};

/// Results that lie on one line.
struct ScalingLine {
  LineKey key;
  std::string name; ///< the deck's file, what its rate is called, and what tells it from the deck's other lines
  std::vector<ScalingValue> rates;   ///< tokens/s, or with flops FLOP/s; by ranks
  std::vector<ScalingValue> seconds; ///< of a step: medians; of a single run with 5 and 95 %
  std::map<std::int64_t, std::vector<NamedResult const*>> by_ranks;
};

/// Says which values of the deck may differ between numbers of ranks on the same line.
enum class Told {
  by_values, ///< those of the batch, and emulated nodes
  by_study,  ///< all: a study says that they belong together, VALID and UNREFERENCED runs, too
};

/// One line per LineKey, named after its rates. A key always has processor, device, ranks per device, MPI, buffers,
/// build, threads, emulated nodes and network, and the kind of the rate. It has tokens, nodes, values of the deck that
/// may follow the ranks, cores, sharing of cores, and the benchmark class only if results on the same number of ranks
/// differ in them. Results without a rate are left out.
/// \param[in] flops  rates in FLOP/s instead, for studies whose model grows with the ranks
std::vector<ScalingLine> scaling_lines(std::vector<NamedResult const*> const& results, Told told, bool flops);

/// Rate per rank, divided by the rate per rank on the fewest ranks.
std::vector<ScalingValue> efficiencies(std::vector<ScalingValue> const& rates);

/// The kind of scaling of runs on several numbers of ranks: the values that they keep the same, by their own counts.
struct Invariant {
  std::optional<StudyKind> kind; ///< nothing: it is no scaling study
  std::string text;              ///< "strong scaling: 1024 tokens per step on any number of ranks"
};
/// \param[in] limit  of weak_model: Study::limit
Invariant invariant_of(ScalingLine const& line, double limit = Study().limit);

} // namespace trainstone
