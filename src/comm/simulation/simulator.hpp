#pragma once

// Runs the schedules of all ranks in one process, without MPI and without data. Owns the proof (what every element
// ends as, symbolically), the reduction tree, the counts and the price on a modelled machine.
// Promises: a schedule without a defect gives the right result with any timing and without relying on MPI's
// buffering; sends are taken to complete only when they are received. Does not know types.

#include "comm/schedule/counters.hpp"
#include "comm/schedule/problem.hpp"
#include "comm/simulation/machine_model.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

enum class Defect {
  malformed,            ///< wrong rank or size, unknown peer or neighbour, range outside its buffer or empty
  read_while_written,   ///< a range is written while another move of the same moment reads or writes it
  length_mismatch,      ///< a send and the receive that it matches have different lengths
  waits_for_ever,       ///< a send, a receive or a node barrier without its other half
  undefined_read,       ///< what is read was never written and is not an input
  mixed_elements,       ///< different elements are added up
  wrong_element,        ///< data ends with another element than its own
  missing_contribution, ///< data ends without some rank's contribution
  doubled_contribution, ///< data ends with some rank's contribution more than once
  foreign_contribution, ///< data ends with the contribution of a rank that has none there
  unheard_rank,         ///< a barrier lets a rank go before some rank has come
};

std::string_view to_string(Defect defect);

struct Finding {
  Defect defect;
  Rank rank;           ///< where it shows
  std::string message; ///< names rank, round or element, and what would be right
};

/// The first defect of `schedules` (of all ranks, in order) as a solution of `problem`; none means proved: every
/// output element is what the collective's definition says, every contribution exactly once; nothing waits for ever;
/// nothing is read while it is written, in shared memory neither. Works on ranges: the cost does not depend on the
/// number of elements.
std::optional<Finding> find_defect(Problem const& problem, std::vector<Schedule> const& schedules);

/// In which order an element of a rank's result was added up: "((0+1)+(2+3))"; of a copied element the rank it came
/// from. The side of a sum with the lowest rank stands first: a + b and b + a have the same bits, and the same text.
/// Schedules must be without defect. \throws Error if that element is undefined
std::string reduction_tree(Problem const& problem, std::vector<Schedule> const& schedules, Rank rank, Index element);

/// The balanced binary tree over 0 ... parts-1, low index bits first, as reduction_tree writes it.
std::string balanced_tree(Rank parts);

/// FORMULAS of collectives: the longest chain of dependent rounds, and per column the busiest rank and all ranks.
struct CollectiveCounts {
  Index rounds = 0;   ///< a node barrier is no round
  Index barriers = 0; ///< node barriers of the rank that has most of them
  Traffic busiest;    ///< each value is the maximum over ranks
  Traffic total;      ///< each value is the sum over ranks

  bool operator==(CollectiveCounts const&) const = default;
};

/// \throws Error if the schedules wait for ever
CollectiveCounts count(Problem const& problem, std::vector<Schedule> const& schedules, std::size_t element_bytes,
                       Index longest_message = longest_mpi_message);

/// Seconds from the first post to the last rank's end. A message occupies a port of its sender and one of its receiver
/// for MachineModel::message, several messages of a rank queue for its ports; local moves take the rank's own time,
/// those before a round's messages while these are under way. \throws Error if the schedules wait for ever
double price(Problem const& problem, std::vector<Schedule> const& schedules, std::size_t element_bytes,
             MachineModel const& machine);

/// The same for the algorithm's own schedules. Of algorithms with PricingSymmetry::nodes on even partitions and equal
/// nodes in block order only one node's schedules are made: 65,536 ranks take seconds at most. Where the elements are
/// no multiple of more than 256 ranks, all blocks are then taken to have their mean size; with fewer elements than
/// ranks that is too much for algorithms whose blocks pass through slow links.
/// \param[in] placement  of ranks that do the same at the same time, in lines of as many ranks as the problem has: the
/// node of each, line after line. They share the machine's network. Empty: the problem's ranks alone
/// \throws InputError if the algorithm refuses the problem
double price(Problem const& problem, Algorithm algorithm, std::size_t element_bytes, MachineModel const& machine,
             std::vector<int> const& placement = {});

} // namespace trainstone
