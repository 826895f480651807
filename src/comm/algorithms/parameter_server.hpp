#pragma once

// Exchange with dedicated parameter servers, each of which keeps one block: workers push what the servers add up, and
// pull what the servers have made of it. One round each; a server's port carries all workers' messages.
// Source: Li et al., Scaling distributed machine learning with the parameter server, 2014.

#include "comm/schedule/problem.hpp"

namespace trainstone {

/// Every worker sends each server its block; a server adds them in the order of workers, and keeps all but the first
/// worker's in scratch until then.
Schedule make_direct_server_push(Problem const& problem, Rank rank);
/// The same, but a server adds them in the balanced binary tree over the workers. Every addition is rounded.
Schedule make_ordered_server_push(Problem const& problem, Rank rank);

/// Every server sends its block to each worker.
Schedule make_direct_server_pull(Problem const& problem, Rank rank);

} // namespace trainstone
