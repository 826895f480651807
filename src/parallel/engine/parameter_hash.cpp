#include "parallel/engine/parameter_hash.hpp"

#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "kernels/norm_block.hpp"
#include "model/parameter_runs.hpp"

#include <xxhash.h>

#include <algorithm>

namespace trainstone {

namespace {

/// Odd: master parameters count otherwise than the equal ones that the model reads.
constexpr std::uint64_t master_factor = 3;

/// Of the elements `part` of a group. Blocks are those of the whole group, so no run may begin inside of one.
std::uint64_t hash_of(ParameterTable const& table, Index group, Range const& part, std::vector<float> const& values) {
  std::uint64_t sum = 0;
  for (GroupRun const& run : group_runs(table, group, part)) {
    Index const begin = run.in_whole.begin, end = run.in_whole.end;
    TRAINSTONE_REQUIRE(begin % norm_block == 0, "a run of group {} begins at {}, inside of a block", group, begin);
    float const* const first = values.data() + (run.in_group - part.begin);
    for (Index i = begin; i < end; i += norm_block) {
      auto const bytes = static_cast<std::size_t>(std::min(norm_block, end - i)) * sizeof(float);
      auto const place = static_cast<std::uint64_t>(group) << 40 | static_cast<std::uint64_t>(i / norm_block);
      sum += XXH3_64bits_withSeed(first + (i - begin), bytes, place);
    }
  }
  return sum;
}

} // namespace

std::uint64_t parameter_hash(ExecutionSpace const& exec, ShardedEngine& engine) {
  StateLayout const& layout = engine.plan().layout;
  std::uint64_t whole = 0, shares = 0; // of what every rank of the shard axis holds, and of what they hold together
  for (Index g = 0; g < std::ssize(layout.groups); ++g) {
    char const* const reason = "trainstone::parallel::parameter_hash: the host hashes the parameters";
    bool const all = !layout.sharding.parameters;
    Range const share = layout.share(g),
                here = all ? Range{0, layout.groups[static_cast<std::size_t>(g)].padded} : share;
    ConstStoredVector const values = all ? engine.whole_parameters(g) : engine.parameter_share(g);
    std::uint64_t const read = hash_of(engine.table(), g, here, copy_to_host(exec, values, reason));
    (all ? whole : shares) += read;
    if (layout.types.master)
      shares += master_factor * hash_of(engine.table(), g, share, copy_to_host(exec, engine.master_share(g), reason));
  }
  if (!hash_adds_up_shares(layout)) return whole + shares;
  auto const part = static_cast<std::int64_t>(shares);
  Communicator& group = engine.communicators().of(Axis::shard);
  return whole + static_cast<std::uint64_t>(control_all_reduce(exec, group, Operation::sum, part));
}

} // namespace trainstone
