#include "train/replica_check.hpp"

#include "comm/control.hpp"

#include <fmt/ranges.h>

#include <array>
#include <map>
#include <vector>

namespace trainstone {

ReplicaComparison compare_replicas(ExecutionSpace const& exec, Communicator& communicator, ShardedEngine& engine) {
  std::uint64_t const hash = parameter_hash(exec, engine);
  auto const value = static_cast<std::int64_t>(hash);
  std::array<std::int64_t, 2> most{value, ~value}; // the complement's maximum is the minimum's complement
  control_all_reduce(exec, communicator, Operation::max, most);
  return {most[0] == ~most[1], hash};
}

std::string describe_replicas(Communicator const& communicator, std::uint64_t hash) {
  std::vector<std::uint64_t> const hashes = all_gather_values(communicator, hash);
  std::map<std::uint64_t, std::vector<std::size_t>> holders;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) holders[hashes[rank]].push_back(rank);
  std::string text;
  for (auto const& [value, ranks] : holders)
    text += fmt::format("{}rank{} {}: hash {:016x}", text.empty() ? "" : "; ", ranks.size() == 1 ? "" : "s",
                        fmt::join(ranks, ", "), value);
  return text;
}

Traffic replica_check_traffic(ShardPlan const& plan) {
  Traffic const agreed = all_values_traffic(2, plan.topology, plan.rank);
  if (!hash_adds_up_shares(plan)) return agreed;
  Topology const group = plan.topology.of(plan.mesh.members(Axis::shard, plan.rank));
  return agreed + all_values_traffic(1, group, plan.member());
}

} // namespace trainstone
