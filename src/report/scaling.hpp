#pragma once

// Several results as a function of the number of ranks, or of the choice of a sweep. Owns the rule which results may be
// compared: rates and times of INVALID or STOPPED runs are left out. Pure functions.

#include "report/report_input.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// What the repeats of a run share: the number of ranks, or of a sweep the number of the choice, from 1.
using CellNumber = std::function<std::int64_t(NamedResult const&)>;
std::int64_t cell_by_ranks(NamedResult const& named);

/// A value of a cell: median over repeats, with their range, or with the 95 % interval of the only one.
struct ScalingValue {
  std::int64_t cell = 1;
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
  std::vector<ScalingValue> rates;   ///< tokens/s, or with flops FLOP/s; by cell
  std::vector<ScalingValue> seconds; ///< of a step: medians; of a single run with 5 and 95 %
  std::map<std::int64_t, std::vector<NamedResult const*>> by_cell;
};

/// Says which values of the deck may differ between cells on the same line.
enum class Told {
  by_values, ///< those of the batch, and emulated nodes
  by_study,  ///< all: a study says that they belong together, VALID and UNREFERENCED runs, too
};

/// One line per LineKey, named after its rates. A key always has processor, device, ranks per device, MPI, buffers,
/// build, threads, emulated nodes and network, and the kind of the rate. It has nodes, cores and sharing of cores only
/// if results on the same number of ranks differ in them. It has tokens, values of the deck that may follow the cell,
/// and the benchmark class only if results of the same cell differ in them. Results without a rate are left out.
/// \param[in] flops  rates in FLOP/s instead, for studies whose model grows with the ranks
std::vector<ScalingLine> scaling_lines(std::vector<NamedResult const*> const& results, Told told, bool flops,
                                       CellNumber const& cell_number = cell_by_ranks);

/// Rate per rank, divided by the rate per rank on the fewest ranks; of cells by ranks.
std::vector<ScalingValue> efficiencies(std::vector<ScalingValue> const& rates);

/// The kind of scaling of runs on several numbers of ranks: the values that they keep the same, by their own counts.
struct Invariant {
  std::optional<StudyKind> kind; ///< nothing: it is no scaling study
  std::string text;              ///< "strong scaling: 1024 tokens per step on any number of ranks"
};
/// \param[in] line   of cells by ranks
/// \param[in] limit  of weak_model: Study::limit
Invariant invariant_of(ScalingLine const& line, double limit = Study().limit);
/// Of choices on one number of ranks. \return of sweep: "1024 tokens per step on 4 ranks"
/// \param[in] kind  to_loss: models may differ
Invariant invariant_of_choices(ScalingLine const& line, StudyKind kind = StudyKind::sweep);

} // namespace trainstone
