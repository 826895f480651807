#pragma once

// Barrier by dissemination: in round k every rank signals to the one 2^k places on, so that after ceil(lg N) rounds
// each has heard of all. Messages carry nothing. Any number of ranks.
// Source: Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, 1988.

#include "comm/schedule/problem.hpp"

namespace trainstone {

Schedule make_dissemination_barrier(Problem const& problem, Rank rank);

} // namespace trainstone
