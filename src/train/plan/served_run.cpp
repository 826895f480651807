#include "train/plan/served_run.hpp"

#include "core/error.hpp"
#include "parallel/program/shard_traffic.hpp"

#include <utility>
#include <vector>

namespace trainstone {

ResolvedRun with_one_worker(ResolvedRun const& all, Rank worker) {
  TRAINSTONE_REQUIRE(is_asynchronous(all.config.parallel) && all.mesh.shard == all.mesh.ranks(),
                     "a training with {} servers among {} ranks is synchronous", all.mesh.servers, all.mesh.ranks());
  std::vector<Rank> members{worker};
  for (Rank server = all.mesh.data(); server < all.mesh.ranks(); ++server) members.push_back(server);
  RunConfig config = all.config;
  config.batch.global /= all.mesh.data();
  config.parallel.overlap = false;                 // servers take a push, and give parameters, as a whole
  if (worker > 0) config.model_setup.save.clear(); // the first worker writes the model
  return resolve_run(config, all.topology.of(members), {.buffers = all.buffers, .gemm = all.gemm, .algorithms = {}});
}

Traffic word_traffic(Topology const& topology, Rank from, Rank to) {
  Traffic word{.messages = 1, .bytes = sizeof(std::int64_t)};
  if (topology.link(from, to) == Link::inter) {
    word.inter_messages = word.messages;
    word.inter_bytes = word.bytes;
  }
  return word;
}

Traffic event_traffic(ResolvedRun const& all) {
  Traffic sent;
  Rank const first = all.mesh.data();
  for (Rank server = first + 1; server < all.mesh.ranks(); ++server) sent += word_traffic(all.topology, first, server);
  return sent;
}

RunPlan plan_with_servers(ResolvedRun const& all, Rank worker, Rank rank) {
  Rank const first_server = all.mesh.data();
  RunPlan plan = plan_run(with_one_worker(all, worker), all.mesh.serves(rank) ? 1 + rank - first_server : 0);
  plan.validation_control = control_traffic_of(all.config.batch.global / all.config.batch.micro, all.topology, rank);
  if (rank == worker) plan.control.push_back({"word of a push", word_traffic(all.topology, worker, first_server)});
  if (rank == first_server)
    plan.control.push_back({"words of an answer, and of its events",
                            word_traffic(all.topology, first_server, worker) + 2 * event_traffic(all)});
  return plan;
}

} // namespace trainstone
