#pragma once

// What ranks do in pairs: messages at one distance for all ranks (a systolic product shifts its blocks so, and
// point-to-point benchmarks measure it), a message in one direction, a copy, and a signal without data.

#include "comm/schedule/problem.hpp"

namespace trainstone {

/// send_receive and copy: one round; a rank that is its own partner copies. Sends half of the elements.
Schedule make_direct_send_receive(Problem const& problem, Rank rank);
/// send_receive inside a node: between two node barriers each rank copies what its partner holds. Sends nothing.
Schedule make_shared_copy_send_receive(Problem const& problem, Rank rank);
/// send: one message.
Schedule make_direct_send(Problem const& problem, Rank rank);
/// signal_wait: one empty message.
Schedule make_direct_signal_wait(Problem const& problem, Rank rank);
/// signal_wait inside a node: one node barrier, the flags of all neighbours.
Schedule make_shared_signal_wait(Problem const& problem, Rank rank);

} // namespace trainstone
