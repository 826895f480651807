#pragma once

// All-to-all by pairs: in round k every rank sends to the one k places on and receives from the one k places back.
// N-1 rounds and messages, least volume, one message per port at a time. Any number of ranks, any partition.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.

#include "comm/schedule/problem.hpp"

namespace trainstone {

/// In place: a message for rank j is overwritten by j's. What comes from a rank before this one's own message to it has
/// left waits in scratch (the first half of the rounds); what comes later goes where it belongs.
Schedule make_pairwise_all_to_all(Problem const& problem, Rank rank);

} // namespace trainstone
