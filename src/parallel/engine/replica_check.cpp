#include "parallel/engine/replica_check.hpp"

#include "comm/execution/control.hpp"
#include "comm/execution/ranks_by_text.hpp"
#include "parallel/program/shard_traffic.hpp"

#include <fmt/format.h>

#include <array>
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
  std::vector<std::string> texts;
  for (std::uint64_t const one : all_gather_values(communicator, hash))
    texts.push_back(fmt::format("hash {:016x}", one));
  return ranks_by_text(texts);
}

Traffic replica_check_traffic(StateLayout const& layout) {
  Traffic const agreed = control_traffic_of(2, layout.topology, layout.rank);
  if (!hash_adds_up_shares(layout)) return agreed;
  return agreed + control_traffic_of(1, layout.line(Axis::shard), layout.member());
}

} // namespace trainstone
