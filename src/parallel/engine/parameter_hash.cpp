#include "parallel/engine/parameter_hash.hpp"

#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "kernels/norm_block.hpp"
#include "parallel/program/shard_traffic.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace trainstone {

namespace {

/// Odd: master parameters count otherwise than the equal ones that the model reads.
constexpr std::uint64_t master_factor = 3;

/// Whether the hash adds up over the ranks of the shard axis.
bool hash_adds_up_shares(StateLayout const& layout) {
  return layout.mesh.shard > 1 && (layout.sharding.parameters || layout.types.master);
}

/// With stages, the second value compares the copies of the token table.
Index hash_values(StateLayout const& layout) { return layout.mesh.pipeline > 1 ? 2 : 1; }

/// Of the elements `part` of a group. Blocks are those of a section, so no part may begin inside of one.
std::uint64_t hash_of(ParameterTable const& table, Index group, Range const& part, std::vector<float> const& values) {
  ParameterGroup const& entry = table.groups()[static_cast<std::size_t>(group)];
  std::uint64_t sum = 0;
  for (ParameterSection const& section : entry.sections) {
    Index const begin = std::max(section.elements.begin, part.begin), end = std::min(section.elements.end, part.end);
    if (begin >= end) continue;
    Index const in_section = begin - section.elements.begin;
    TRAINSTONE_REQUIRE(in_section % norm_block == 0, "a part of group {} begins at {}, inside of a block", entry.number,
                       begin);
    auto place = static_cast<std::uint64_t>(section.number) << 40 | static_cast<std::uint64_t>(in_section / norm_block);
    for (Index i = begin; i < end; i += norm_block, ++place) {
      auto const bytes = static_cast<std::size_t>(std::min(norm_block, end - i)) * sizeof(float);
      sum += XXH3_64bits_withSeed(values.data() + (i - part.begin), bytes, place);
    }
  }
  return sum;
}

/// The sums of a group's hashes on a rank.
struct GroupHash {
  std::uint64_t whole = 0;  ///< of what every rank of the shard axis holds
  std::uint64_t shares = 0; ///< of what these ranks hold together
};

GroupHash hash_here(ExecutionSpace const& exec, ShardedEngine const& engine, Index group) {
  StateLayout const& layout = engine.plan().layout;
  char const* const reason = "trainstone::parallel::parameter_hash: the host hashes the parameters";
  bool const all = !layout.sharding.parameters;
  Range const share = layout.share(group),
              here = all ? Range{0, layout.groups[static_cast<std::size_t>(group)].padded} : share;
  ConstStoredVector const values = all ? engine.whole_parameters(group) : engine.parameter_share(group);
  GroupHash hash;
  (all ? hash.whole : hash.shares) += hash_of(engine.table(), group, here, copy_to_host(exec, values, reason));
  if (layout.types.master)
    hash.shares +=
        master_factor * hash_of(engine.table(), group, share, copy_to_host(exec, engine.master_share(group), reason));
  return hash;
}

/// Sums modulo 2^64 over the ranks of a line.
void add_up(ExecutionSpace const& exec, Communicator& line, std::span<std::uint64_t> sums) {
  std::vector<std::int64_t> values(sums.begin(), sums.end());
  control_all_reduce(exec, line, Operation::sum, values);
  std::ranges::copy(values, sums.begin());
}

} // namespace

ParameterHash hash_parameters(ExecutionSpace const& exec, ShardedEngine& engine) {
  StateLayout const& layout = engine.plan().layout;
  ModelStage const& stage = engine.table().stage();
  bool const has_copies = !(stage.embed && stage.head); // one stage may have both ends
  std::array<std::uint64_t, 2> whole{}, shares{};       // of counted groups; of the token table, less its copy's
  for (Index g = 0; g < std::ssize(layout.groups); ++g) {
    auto const [all, part] = hash_here(exec, engine, g);
    bool const counts = layout.counts(g);
    if (counts) {
      whole[0] += all;
      shares[0] += part;
    }
    if (!has_copies || layout.groups[static_cast<std::size_t>(g)].number != token_table_group) continue;
    whole[1] += counts ? all : -all;
    shares[1] += counts ? part : -part;
  }
  auto const values = static_cast<std::size_t>(hash_values(layout));
  if (hash_adds_up_shares(layout))
    add_up(exec, engine.communicators().of(Axis::shard), std::span(shares).first(values));
  std::array<std::uint64_t, 2> sums{whole[0] + shares[0], whole[1] + shares[1]};
  if (layout.mesh.pipeline == 1) return {sums[0], true};
  add_up(exec, engine.communicators().of(Axis::pipeline), sums);
  return {sums[0], sums[1] == 0};
}

Traffic parameter_hash_traffic(StateLayout const& layout) {
  Traffic sent;
  if (hash_adds_up_shares(layout))
    sent += control_traffic_of(hash_values(layout), layout.line(Axis::shard), layout.member());
  if (layout.mesh.pipeline > 1)
    sent += control_traffic_of(hash_values(layout), layout.line(Axis::pipeline),
                               layout.mesh.index(Axis::pipeline, layout.rank));
  return sent;
}

} // namespace trainstone
