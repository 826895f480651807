#pragma once

// Few elements in a node's shared memory, through the mailboxes beside the ranks' flags: one node barrier, after which
// every rank finds what it needs in its neighbours' mailboxes and does all additions itself. Memory traffic of an
// all-reduce of S bytes on N ranks beside the copies into the mailboxes: N (N+1) S.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

Schedule make_shared_mailbox_all_reduce(Problem const& problem, Rank rank);
Schedule make_shared_mailbox_reduce_scatter(Problem const& problem, Rank rank);
Schedule make_shared_mailbox_all_gather(Problem const& problem, Rank rank);
Schedule make_shared_mailbox_broadcast(Problem const& problem, Rank rank);

} // namespace trainstone
