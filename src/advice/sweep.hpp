#pragma once

// How memory, traffic and time of a deck change with the number of ranks: a row for each number. Weak scaling keeps
// what a rank computes, strong scaling the batch of all. Owns which keys a row sets. Pure.

#include "advice/step_machine.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// "ranks=8..65536": doubled from the first to the last one. The last one is a row of its own in any case.
struct SweepRange {
  std::int64_t first = 1, last = 1;
};

/// \throws InputError with the form and the legal values
SweepRange read_sweep_range(std::string const& text);

enum class Scaling { weak, strong };

struct SweepRow {
  std::int64_t ranks = 1, nodes = 1;
  Mesh mesh;
  std::vector<std::string> keys; ///< that --set takes
  std::int64_t samples = 0;      ///< of a step
  std::uint64_t needed = 0;      ///< bytes, of the rank that needs most
  Traffic sent;                  ///< per step, by the rank that sends most, control traffic included
  double seconds = 0;            ///< of a step
  double efficiency = 1;         ///< samples per second and rank, by those of the first row
};

/// \param[in] asked  on the ranks and nodes of the first row; later rows have as many ranks per node
/// \throws InputError if the deck cannot run on the first number of ranks, or on a later one
std::vector<SweepRow> sweep(DeckOnRanks const& asked, SweepRange const& range, Scaling scaling,
                            StepMachine const& machine);

/// A table, lines with their ends.
std::string sweep_text(std::vector<SweepRow> const& rows);

} // namespace trainstone
