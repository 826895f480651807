#include "parallel/engine/parameter_hash.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "kernels/norm.hpp"

#include <xxhash.h>

#include <algorithm>

namespace trainstone {

namespace {

/// Odd: master parameters count otherwise than the equal ones that the model reads.
constexpr std::uint64_t master_factor = 3;

/// Of elements that begin at `first` (a multiple of norm_block) of their group.
std::uint64_t hash_of(ParameterGroup const& group, Index number, Index first, std::vector<float> const& values) {
  std::uint64_t sum = 0;
  Index const end = std::min(static_cast<Index>(values.size()), group.size - first);
  for (Index i = 0; i < end; i += norm_block) {
    auto const bytes = static_cast<std::size_t>(std::min(norm_block, end - i)) * sizeof(float);
    auto const place = static_cast<std::uint64_t>(number) << 40 | static_cast<std::uint64_t>((first + i) / norm_block);
    sum += XXH3_64bits_withSeed(values.data() + i, bytes, place);
  }
  return sum;
}

} // namespace

std::uint64_t parameter_hash(ExecutionSpace const& exec, ShardedEngine& engine) {
  ShardPlan const& plan = engine.plan();
  std::uint64_t whole = 0, shares = 0; // of what every rank of the shard axis holds, and of what they hold together
  for (Index g = 0; g < std::ssize(plan.groups); ++g) {
    ParameterGroup const& group = plan.groups[static_cast<std::size_t>(g)];
    char const* const reason = "trainstone::parallel::parameter_hash: the host hashes the parameters";
    bool const all = !plan.sharding.parameters;
    std::uint64_t const read =
        hash_of(group, g, all ? 0 : plan.share(g).begin,
                copy_to_host(exec, all ? engine.whole_parameters(g) : engine.parameter_share(g), reason));
    (all ? whole : shares) += read;
    if (plan.types.master)
      shares +=
          master_factor * hash_of(group, g, plan.share(g).begin, copy_to_host(exec, engine.master_share(g), reason));
  }
  if (!hash_adds_up_shares(plan)) return whole + shares;
  auto const part = static_cast<std::int64_t>(shares);
  Communicator& group = engine.communicators().of(Axis::shard);
  return whole + static_cast<std::uint64_t>(control_all_reduce(exec, group, Operation::sum, part));
}

} // namespace trainstone
