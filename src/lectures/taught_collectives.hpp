#pragma once

// The cost of all-reduces as it is taught, beside the exact one. Owns the textbook formulas, the exact closed forms,
// and for each the simulator's count and price. Promises: counts come from the schedules alone, so that a closed form
// that is wrong shows as a difference. Message passing on one node; all ranks have blocks of one size. Pure; renders no
// text (lectures/lecture_collectives.hpp).

#include "comm/simulation/machine_model.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// Bytes sent by all ranks together in one all-reduce of S bytes on N ranks.
struct TotalRow {
  std::string method;
  std::string taught_formula;
  double taught = 0;
  std::string exact_formula;
  std::uint64_t exact = 0;
  std::uint64_t counted = 0;
  double balance = 1; ///< of bytes sent: largest over mean of the ranks
};

/// Seconds of one all-reduce.
struct TimeRow {
  std::string method;
  std::string taught_formula;        ///< empty: not taught
  std::optional<double> taught;      ///< bytes / bandwidth
  double without_start = 0;          ///< simulated with alpha = gamma = 0
  std::optional<double> exact;       ///< closed form with alpha, beta, gamma, where there is one
  double priced = 0;                 ///< simulated with alpha, beta, gamma
  double on_machine = 0;             ///< simulated with the machine's own curves
  std::string taught_cost_formula;   ///< with start-up; empty: not taught
  std::optional<double> taught_cost; ///< with alpha and beta, gamma = 0
};

/// All methods at one size, and which of them is the quickest.
struct TimeTable {
  std::uint64_t bytes = 0;
  AlphaBetaGamma constants; ///< of the machine at this size
  std::vector<TimeRow> rows;
};

/// The busiest rank of one all-reduce.
struct RankRow {
  std::string method;
  std::optional<std::int64_t> taught_rounds;
  std::int64_t exact_rounds = 0;
  std::int64_t counted_rounds = 0;
  std::string taught_formula; ///< of bytes sent
  std::optional<double> taught_bytes;
  std::string exact_formula;
  std::uint64_t exact_bytes = 0;
  std::uint64_t counted_bytes = 0;
};

/// Bytes sent and received by one rank of one all-reduce.
struct LoadRow {
  std::string method;
  std::optional<double> taught;
  std::optional<std::uint64_t> exact_busiest; ///< where there is a closed form
  std::uint64_t counted_busiest = 0;
  double mean = 0; ///< over ranks, counted
};

/// One round of Rabenseifner's algorithm.
struct ExchangeRow {
  int round = 0; ///< from 1
  std::string taught_formula;
  double taught_bytes = 0;   ///< that a rank sends
  std::uint64_t counted = 0; ///< that the busiest rank sends
};

struct TaughtCollectives {
  int ranks = 0;
  std::uint64_t bytes = 0;
  std::vector<TotalRow> totals;
  std::vector<TimeTable> times; ///< at the given size, and at a small one of one element per rank
  std::vector<RankRow> busiest;
  std::vector<LoadRow> loads;
  std::vector<ExchangeRow> exchanges; ///< of powers of two only
  /// Below so many bytes a butterfly beats Rabenseifner's algorithm, with the constants of the given size; of powers of
  /// two above 2 only.
  std::optional<double> butterfly_until;
};

inline constexpr std::uint64_t taught_element_bytes = 4;
inline constexpr int most_taught_ranks = 512; ///< every message of every method is simulated

/// Sizes for `ranks` ranks are multiples of this: blocks are even, those of folded algorithms too.
std::uint64_t taught_size_step(int ranks);

/// \param[in] ranks 2 ... most_taught_ranks    \param[in] bytes a multiple of taught_size_step(ranks), above 0
/// \throws InputError naming the nearest legal values
TaughtCollectives compare_taught_collectives(int ranks, std::uint64_t bytes, MachineModel const& machine);

/// alpha: a machine's start-up time of the smallest messages inside a node; beta and gamma such that a message and a
/// reduction of so many bytes (not 0) take as long as the machine's own curves say, but for a reduction's start.
AlphaBetaGamma constants_of(MachineModel const& machine, std::uint64_t bytes);

} // namespace trainstone
