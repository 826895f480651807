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
#include <utility>
#include <vector>

namespace trainstone {

namespace {

/// Odd: master parameters count otherwise than the equal ones that the model reads.
constexpr std::uint64_t master_factor = 3;

/// Whether the hash adds up over the ranks of the shard axis.
bool hash_adds_up_shares(StateLayout const& layout) {
  return layout.mesh.shard > 1 && (layout.sharding.parameters || layout.types.master || layout.mesh.servers > 0);
}

/// Sums of hashes of blocks.
struct HashSums {
  std::uint64_t counted = 0; ///< of what this rank counts
  std::uint64_t table = 0;   ///< of the token table, less its copy's
  std::uint64_t uncut = 0;   ///< of what all ranks that share slices have
  std::uint64_t whole = 0;   ///< of what all ranks that share features have
  std::uint64_t served = 0;  ///< of the parameters of dedicated servers

  HashSums& operator+=(HashSums const& other) {
    counted += other.counted;
    table += other.table;
    uncut += other.uncut;
    whole += other.whole;
    served += other.served;
    return *this;
  }
};

/// Those that the ranks of an axis add up: the second one with stages, the next ones with tensor ranks. These compare
/// theirs.
std::vector<std::uint64_t HashSums::*> sums_over(Axis axis, Mesh const& mesh) {
  std::vector<std::uint64_t HashSums::*> sums{&HashSums::counted};
  if (mesh.pipeline > 1) sums.push_back(&HashSums::table);
  if (mesh.tensor > 1 && axis != Axis::tensor) sums.push_back(&HashSums::uncut);
  if (mesh.features > 1 && axis != Axis::features) sums.push_back(&HashSums::whole);
  if (mesh.servers > 0) sums.push_back(&HashSums::served);
  return sums;
}

/// The axes over which hashes are added up, in order.
std::vector<Axis> axes_of_hash(StateLayout const& layout) {
  std::vector<Axis> all;
  if (hash_adds_up_shares(layout)) all.push_back(Axis::shard);
  for (Axis const axis : model_axes)
    if (layout.mesh.size(axis) > 1) all.push_back(axis);
  return all;
}

/// Of those elements of a section that are in `part` of its group, whose values are given. Blocks are those of a
/// section, so no part may begin inside of one.
std::uint64_t hash_of(ParameterSection const& section, Range const& part, std::vector<float> const& values) {
  Index const begin = std::max(section.elements.begin, part.begin), end = std::min(section.elements.end, part.end);
  if (begin >= end) return 0;
  Index const in_section = begin - section.elements.begin;
  TRAINSTONE_REQUIRE(in_section % norm_block == 0, "a part of section {} begins at {}, inside of a block",
                     section.number, begin);
  auto place = static_cast<std::uint64_t>(section.number) << 40 | static_cast<std::uint64_t>(in_section / norm_block);
  std::uint64_t sum = 0;
  for (Index i = begin; i < end; i += norm_block, ++place) {
    auto const bytes = static_cast<std::size_t>(std::min(norm_block, end - i)) * sizeof(float);
    sum += XXH3_64bits_withSeed(values.data() + (i - part.begin), bytes, place);
  }
  return sum;
}

/// Of a group's elements on this rank.
struct GroupHash {
  HashSums whole;  ///< of what every rank of the shard axis holds
  HashSums shares; ///< of what these ranks hold together
};

HashSums sums_of(ShardedEngine const& engine, Index group, Range const& part, std::vector<float> const& values) {
  StateLayout const& layout = engine.plan().layout;
  ParameterGroup const& entry = layout.groups[static_cast<std::size_t>(group)];
  ModelStage const& stage = engine.table().stage();
  bool const has_copy = entry.number == token_table_group && !(stage.embed && stage.head); // one stage may have both
  HashSums sums;
  for (ParameterSection const& section : entry.sections) {
    std::uint64_t const hash = hash_of(section, part, values);
    if (layout.counts(group, section)) sums.counted += hash;
    if (has_copy) sums.table += layout.counts(group) ? hash : -hash;
    if (!layout.counts(group)) continue;
    if (!section.is_of_slice() && layout.counts_cut(section.is_of_part(), Axis::features)) sums.uncut += hash;
    if (!section.is_of_part() && layout.counts_cut(section.is_of_slice(), Axis::tensor)) sums.whole += hash;
  }
  return sums;
}

GroupHash hash_here(ExecutionSpace const& exec, ShardedEngine const& engine, Index group) {
  StateLayout const& layout = engine.plan().layout;
  char const* const reason = "trainstone::parallel::parameter_hash: the host hashes the parameters";
  bool const all = !layout.keeps_shares_of_parameters();
  Range const share = layout.share(group),
              here = all ? Range{0, layout.groups[static_cast<std::size_t>(group)].padded} : share;
  ConstStoredVector const values = all ? engine.whole_parameters(group) : engine.parameter_share(group);
  GroupHash hash;
  HashSums sums = sums_of(engine, group, here, copy_to_host(exec, values, reason));
  if (layout.serves()) sums.served = std::exchange(sums.counted, 0);
  (all ? hash.whole : hash.shares) += sums;
  if (layout.types.master) {
    std::vector<float> whole;
    engine.read_state(0, group, {0, share.size()}, [&](Range const&, Vector<float> const& piece) {
      std::vector<float> const read = copy_to_host(exec, piece, reason);
      whole.insert(whole.end(), read.begin(), read.end());
    });
    HashSums master = sums_of(engine, group, share, whole);
    for (auto const sum : {&HashSums::counted, &HashSums::table, &HashSums::uncut, &HashSums::whole})
      master.*sum *= master_factor;
    hash.shares += master;
  }
  return hash;
}

/// Sums modulo 2^64 over the ranks of a line.
void add_up(ExecutionSpace const& exec, Communicator& line, HashSums& all,
            std::vector<std::uint64_t HashSums::*> const& sums) {
  std::vector<std::int64_t> values;
  for (auto const sum : sums) values.push_back(static_cast<std::int64_t>(all.*sum));
  control_all_reduce(exec, line, Operation::sum, values);
  for (std::size_t i = 0; i < sums.size(); ++i) all.*sums[i] = static_cast<std::uint64_t>(values[i]);
}

} // namespace

ParameterHash hash_parameters(ExecutionSpace const& exec, ShardedEngine& engine) {
  StateLayout const& layout = engine.plan().layout;
  HashSums whole, sums;
  for (Index g = 0; g < std::ssize(layout.groups); ++g) {
    auto const [all, shares] = hash_here(exec, engine, g);
    whole += all;
    sums += shares;
  }
  if (!hash_adds_up_shares(layout)) sums += whole;
  for (Axis const axis : axes_of_hash(layout)) {
    add_up(exec, engine.communicators().of(axis), sums, sums_over(axis, layout.mesh));
    if (axis == Axis::shard) sums += whole;
  }
  if (layout.serves()) sums.counted += sums.served; // as workers count what they have pulled
  Mesh const& mesh = layout.mesh;
  return {sums.counted, sums.table == 0, mesh.tensor > 1 ? sums.uncut : 0, mesh.features > 1 ? sums.whole : 0};
}

Traffic parameter_hash_traffic(StateLayout const& layout) {
  Traffic sent;
  for (Axis const axis : axes_of_hash(layout))
    sent += control_traffic_of(std::ssize(sums_over(axis, layout.mesh)), layout.line(axis),
                               layout.mesh.index(axis, layout.rank));
  return sent;
}

} // namespace trainstone
