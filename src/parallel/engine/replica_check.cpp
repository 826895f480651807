#include "parallel/engine/replica_check.hpp"

#include "comm/execution/control.hpp"
#include "comm/execution/ranks_by_text.hpp"
#include "parallel/program/shard_traffic.hpp"

#include <fmt/format.h>

#include <vector>

namespace trainstone {

namespace {

/// Of all ranks. With stages, the third value says whether copies of the token table differ.
Index values_compared(StateLayout const& layout) { return layout.mesh.pipeline > 1 ? 3 : 2; }

} // namespace

ReplicaComparison compare_replicas(ExecutionSpace const& exec, Communicator& communicator, ShardedEngine& engine) {
  auto const [hash, copies_agree] = hash_parameters(exec, engine);
  auto const value = static_cast<std::int64_t>(hash);
  // the complement's maximum is the minimum's complement
  std::vector<std::int64_t> most{value, ~value};
  if (values_compared(engine.plan().layout) > 2) most.push_back(copies_agree ? 0 : 1);
  control_all_reduce(exec, communicator, Operation::max, most);
  bool const all_agree = most.size() == 2 || most[2] == 0;
  return {most[0] == ~most[1] && all_agree, hash, copies_agree};
}

std::string describe_replicas(Communicator const& communicator, ReplicaComparison const& compared) {
  std::vector<std::uint64_t> const hashes = all_gather_values(communicator, compared.hash);
  std::vector<char> const agree = all_gather_values(communicator, static_cast<char>(compared.copies_agree));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank)
    texts.push_back(fmt::format("hash {:016x}{}", hashes[rank],
                                agree[rank] != 0 ? "" : ", first and last stage differ in the token table"));
  return ranks_by_text(texts);
}

Traffic replica_check_traffic(StateLayout const& layout) {
  return parameter_hash_traffic(layout) + control_traffic_of(values_compared(layout), layout.topology, layout.rank);
}

} // namespace trainstone
