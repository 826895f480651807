#pragma once

// A run with parameter servers whose workers do not wait for each other, as one rank plans it: the run of one worker
// with all servers. A step of it is a push. Pure.

#include "parallel/plan/strategies.hpp"
#include "train/plan/resolved_run.hpp"
#include "train/plan/run_plan.hpp"

namespace trainstone {

/// The worker that a rank of all trains with, of a server the first one.
inline Rank worker_of(ResolvedRun const& all, Rank rank) { return all.mesh.serves(rank) ? 0 : rank; }

/// The training of one worker with all servers, out of a run of all ranks. The worker is rank 0, servers follow.
/// \throws Error unless is_asynchronous()
ResolvedRun with_one_worker(ResolvedRun const& all, Rank worker);

/// A whole number, from one rank to another.
Traffic word_traffic(Topology const& topology, Rank from, Rank to);
/// From the first server to the others.
Traffic event_traffic(ResolvedRun const& all);

/// The plan of a rank, the worker's or a server's, for the pushes of this worker. Losses of a validation are added up
/// over all ranks. Words that workers and servers exchange beside gradients and parameters belong to a step.
RunPlan plan_with_servers(ResolvedRun const& all, Rank worker, Rank rank);

} // namespace trainstone
