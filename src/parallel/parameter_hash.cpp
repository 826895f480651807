#include "parallel/parameter_hash.hpp"

#include "comm/control.hpp"
#include "core/host_copy.hpp"
#include "kernels/norm.hpp"

#include <xxhash.h>

#include <algorithm>

namespace trainstone {

namespace {

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
  bool const whole = !plan.sharding.parameters;
  std::uint64_t sum = 0;
  for (Index g = 0; g < std::ssize(plan.groups); ++g) {
    Vector<float> const held = whole ? engine.whole_parameters(g) : engine.parameter_share(g);
    std::vector<float> const values =
        copy_to_host(exec, held, "trainstone::parallel::parameter_hash: the host hashes the parameters");
    sum += hash_of(plan.groups[static_cast<std::size_t>(g)], g, whole ? 0 : plan.share(g).begin, values);
  }
  if (whole) return sum;
  auto const part = static_cast<std::int64_t>(sum);
  return static_cast<std::uint64_t>(control_all_reduce(exec, engine.communicators().shard, Operation::sum, part));
}

} // namespace trainstone
