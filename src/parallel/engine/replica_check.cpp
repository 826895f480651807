#include "parallel/engine/replica_check.hpp"

#include "comm/execution/control.hpp"
#include "comm/execution/ranks_by_text.hpp"
#include "parallel/program/shard_traffic.hpp"

#include <fmt/format.h>

#include <vector>

namespace trainstone {

namespace {

/// The values whose maxima over all ranks are compared.
std::vector<std::int64_t> values_compared(ParameterHash const& hash, Mesh const& mesh) {
  std::vector<std::int64_t> values;
  auto const add = [&](std::uint64_t same) { // the complement's maximum is the minimum's complement
    values.push_back(static_cast<std::int64_t>(same));
    values.push_back(~values.back());
  };
  add(hash.value);
  if (mesh.tensor > 1) add(hash.uncut);
  if (mesh.features > 1) add(hash.whole);
  if (mesh.pipeline > 1) values.push_back(hash.copies_agree ? 0 : 1);
  return values;
}

} // namespace

ReplicaComparison compare_replicas(ExecutionSpace const& exec, Communicator& communicator, ShardedEngine& engine) {
  ParameterHash const hash = hash_parameters(exec, engine);
  std::vector<std::int64_t> most = values_compared(hash, engine.plan().layout.mesh);
  control_all_reduce(exec, communicator, Operation::max, most);
  bool equal = true;
  for (std::size_t i = 0; i + 1 < most.size(); i += 2) equal = equal && most[i] == ~most[i + 1];
  bool const copies_agree = most.size() % 2 == 0 || most.back() == 0;
  return {equal && copies_agree, hash};
}

std::string describe_replicas(Communicator const& communicator, ReplicaComparison const& compared) {
  std::vector<std::uint64_t> const hashes = all_gather_values(communicator, compared.hash.value);
  std::vector<std::uint64_t> const uncut = all_gather_values(communicator, compared.hash.uncut);
  std::vector<std::uint64_t> const whole = all_gather_values(communicator, compared.hash.whole);
  std::vector<char> const agree = all_gather_values(communicator, static_cast<char>(compared.hash.copies_agree));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank)
    texts.push_back(
        fmt::format("hash {:016x}{}{}{}", hashes[rank],
                    uncut[rank] == 0 ? "" : fmt::format(", of tensors that are not cut {:016x}", uncut[rank]),
                    whole[rank] == 0 ? "" : fmt::format(", of tensors with all features {:016x}", whole[rank]),
                    agree[rank] != 0 ? "" : ", first and last stage differ in the token table"));
  return ranks_by_text(texts);
}

Traffic replica_check_traffic(StateLayout const& layout) {
  return parameter_hash_traffic(layout) +
         control_traffic_of(std::ssize(values_compared({}, layout.mesh)), layout.topology, layout.rank);
}

} // namespace trainstone
