#pragma once

// Runs the schedules of all ranks in one process, without MPI and without data. Owns the proof (what every element
// ends as, symbolically), the counts and the price on an alpha-beta-gamma machine.
// Promises: a schedule without a defect gives the right result with any timing and without relying on MPI's
// buffering; sends are taken to complete only when they are received. Does not know types or node borders.

#include "comm/counters.hpp"
#include "comm/schedule.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

enum class Defect {
  malformed,            ///< wrong rank or size, unknown peer, range outside its buffer or empty
  read_while_written,   ///< a range is written while another move of the same moment reads or writes it
  length_mismatch,      ///< a send and the receive that it matches have different lengths
  waits_for_ever,       ///< a send or a receive without its other half
  undefined_read,       ///< scratch is read before it is written
  mixed_elements,       ///< different elements are added up
  wrong_element,        ///< data ends with another element than its own
  missing_contribution, ///< data ends without some rank's contribution
  doubled_contribution, ///< data ends with some rank's contribution more than once
};

std::string_view to_string(Defect defect);

struct Finding {
  Defect defect;
  Rank rank;           ///< where it shows
  std::string message; ///< names rank, round or element, and what would be right
};

/// The first defect of the collective that `schedules` (of all ranks, in order) are to perform; none means proved:
/// every output element is every rank's contribution exactly once, nothing waits for ever, nothing is read while it
/// is written. Works on ranges: the cost does not depend on the number of elements.
std::optional<Finding> find_defect(std::vector<Schedule> const& schedules);

/// FORMULAS of collectives: the longest chain of dependent rounds, and per column the busiest rank and all ranks.
struct CollectiveCounts {
  Index rounds = 0;
  Traffic busiest; ///< each value is the maximum over ranks
  Traffic total;   ///< each value is the sum over ranks

  bool operator==(CollectiveCounts const&) const = default;
};

/// \throws Error if the schedules wait for ever
CollectiveCounts count(std::vector<Schedule> const& schedules, std::size_t element_bytes,
                       Index longest_message = longest_mpi_message);

/// Seconds to start a message, per byte sent, and per byte reduced.
struct Machine {
  double alpha = 0;
  double beta = 0;
  double gamma = 0;
};

/// Seconds from the first post to the last rank's end on a machine with one full-duplex port per rank: a message
/// occupies its sender's and its receiver's port for alpha + beta * bytes; several messages of a round queue for
/// the port. Copies are free. \throws Error if the schedules wait for ever
double price(std::vector<Schedule> const& schedules, std::size_t element_bytes, Machine const& machine);

} // namespace trainstone
