#include "parallel/program/step_counts.hpp"

#include "comm/execution/local_moves.hpp"
#include "kernels/norm_block.hpp"
#include "kernels/norm_tree.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>

namespace trainstone {

namespace {

std::uint64_t count_of(Index value) { return static_cast<std::uint64_t>(value); }

/// Runs of this rank's shares of groups [first, last] that lie side by side among summed gradients.
std::uint64_t runs_of_gradients(ShardPlan const& plan, Index first, Index last) {
  std::uint64_t runs = 0;
  Index end = -1; // of the share before
  for (Index group = first; group <= last; ++group) {
    Index const size = plan.layout.share(group).size();
    if (size == 0) continue;
    Index const begin = gradient_begin(plan, group);
    runs += begin == end ? 0 : 1;
    end = begin + size;
  }
  return runs;
}

/// \param[in,out] all  from `first` on gathers alone
void add_gather(std::vector<RepeatedCollective>& all, std::ptrdiff_t first, ShardPlan const& plan, Index unit,
                std::uint64_t times) {
  for (UnitGather const& gather : plan.gathers.of_unit[static_cast<std::size_t>(unit)]) {
    auto const same = std::find_if(all.begin() + first, all.end(), [&](RepeatedCollective const& other) {
      return are_alike(gather, {other.planned, other.pieces});
    });
    if (same != all.end())
      same->times += times;
    else
      all.push_back(
          {"parameters", gather.planned, bytes_per_value(plan.layout.types.parameters), gather.pieces, times});
  }
}

/// How often each run is reduced, each unit gathered, and each kind of message sent.
struct Tally {
  std::map<Index, std::uint64_t> reductions, reductions_of_sums, gathers, messages, exchanges;
  std::uint64_t ties = 0;

  explicit Tally(std::vector<Segment> const& segments) {
    for (Segment const& segment : segments)
      for (Instruction const& instruction : segment.instructions) switch (instruction.act) {
        case Act::gather: gathers[instruction.subject] += count_of(segment.times); break;
        case Act::reduce: reductions[instruction.subject] += count_of(segment.times); break;
        case Act::reduce_sums: reductions_of_sums[instruction.subject] += count_of(segment.times); break;
        case Act::send: messages[instruction.subject] += count_of(segment.times); break;
        case Act::exchange: exchanges[instruction.subject] += count_of(segment.times); break;
        case Act::tie: ties += count_of(segment.times); break;
        default: break;
        }
  }

  std::uint64_t reductions_of(Index run, bool of_sums) const {
    auto const& all = of_sums ? reductions_of_sums : reductions;
    auto const found = all.find(run);
    return found == all.end() ? 0 : found->second;
  }
};

/// What tensor ranks bring together, and what the stages of a pipeline exchange.
void add_exchanges(std::vector<RepeatedCollective>& all, ShardPlan const& plan, Tally const& tally) {
  for (auto const& [exchange, times] : tally.exchanges) {
    PlannedExchange const& planned = plan.tensor.exchanges.at(static_cast<SliceExchange>(exchange));
    all.push_back({to_string(static_cast<SliceExchange>(exchange)), planned.collective, planned.element_bytes,
                   planned.pieces, times});
  }
  PipelinePlan const& pipeline = plan.pipeline;
  for (auto const& [kind, times] : tally.messages) {
    auto const message = static_cast<MessageKind>(kind);
    all.push_back({message == MessageKind::activation ? "activations" : "gradients of activations",
                   planned_message(pipeline, plan.layout, message, pipeline.stage),
                   bytes_per_value(plan.layout.types.parameters),
                   {},
                   times});
  }
  if (pipeline.table && tally.ties > 0)
    all.push_back(
        {"token table's gradient", *pipeline.table, bytes_per_value(plan.reductions.storage), {}, tally.ties});
}

/// Folds of so many micro-batches: additions to the sums of 2^k micro-batches that wait for their partner, and copies
/// of results that do not lie where they belong. Micro-batch i makes as many additions as the binary number i ends with
/// ones; the first n of them make n minus the number of ones in n.
std::uint64_t fold_launches(ShardPlan const& plan, Index first, Index times) {
  auto const additions = [](Index n) { return count_of(n - std::popcount(count_of(n))); };
  bool const last_in_place = first + times == plan.layout.rank_micro_batches && !plan.reductions.fresh_gradients_apart;
  return additions(first + times) - additions(first) + count_of(times) - (last_in_place ? 1 : 0);
}

/// Kernels that round sums, add up squares of blocks, bring the blocks of a group together if several ranks have them,
/// and add those of sections in trees.
std::uint64_t norm_launches(ShardPlan const& plan) {
  Index const groups = std::ssize(plan.layout.groups);
  std::uint64_t launches = (plan.reductions.rounds_sums ? 2 : 1) * runs_of_gradients(plan, 0, groups - 1);
  bool const apart = plan.layout.ownership.owners() > 1;
  std::vector<TreeSection> sections; // that are added up at once
  for (Index group = 0; group < groups; ++group) {
    for (ParameterSection const& section : plan.layout.groups[static_cast<std::size_t>(group)].sections) {
      Index const begin = section.elements.begin / norm_block;
      sections.push_back({begin, (section.elements.end + norm_block - 1) / norm_block - begin});
    }
    if (!apart && group + 1 < groups) continue;
    launches += (apart ? 1 : 0) + tree_sums_launches(sections);
    sections.clear();
  }
  if (plan.gathers.norm) launches += kernels_of(schedule_of(*plan.gathers.norm, plan.layout.mesh, plan.layout.rank));
  return launches;
}

/// Groups of a unit of which this rank has a share.
std::uint64_t groups_shared(ShardPlan const& plan, Index unit) {
  auto const& [name, first, last, offset, padded] = plan.layout.units[static_cast<std::size_t>(unit)];
  std::uint64_t shared = 0;
  for (Index group = first; group <= last; ++group) shared += plan.layout.share(group).empty() ? 0 : 1;
  return shared;
}

/// By run: the parts of which this rank has a share, over all buckets of the run.
std::vector<std::uint64_t> shares_of_runs(ShardPlan const& plan) {
  auto const has_share = [&](BucketPart const& part) { return !plan.layout.share(part.group).empty(); };
  std::vector<std::uint64_t> shares(plan.reductions.buckets.runs.size(), 0);
  for (auto const& [bucket, count] : plan.reductions.buckets.by_size())
    shares[static_cast<std::size_t>(bucket.run)] += count * count_of(std::ranges::count_if(bucket.parts, has_share));
  return shares;
}

/// The kernels that the engine itself starts. The kernels inside of collectives are counted apart.
std::uint64_t own_launches(ShardPlan const& plan, std::vector<std::uint64_t> const& shares,
                           Instruction const& instruction, Index times) {
  switch (instruction.act) {
  case Act::gather: return count_of(times) * groups_shared(plan, instruction.subject); // the shares, into their slot
  case Act::fold: return fold_launches(plan, instruction.micro_batch, times);
  case Act::accumulate:
    return shares[static_cast<std::size_t>(instruction.subject)] *
           (plan.reductions.ordered ? fold_launches(plan, instruction.micro_batch, times) : count_of(times));
  case Act::tie:
    if (plan.pipeline.table) return 0; // inside of the collective
    return count_of(times) * (plan.layout.share(plan.reductions.gradients.looked_up()->group).empty() ? 0 : 1);
  case Act::norm: return count_of(times) * norm_launches(plan);
  case Act::update: { // of one unit; the optimizer is counted apart
    if (instruction.subject == Instruction::none || !plan.reductions.rounds_sums) return 0;
    ParameterUnit const& unit = plan.layout.units[static_cast<std::size_t>(instruction.subject)];
    return count_of(times) * runs_of_gradients(plan, unit.first_group, unit.last_group);
  }
  default: return 0;
  }
}

} // namespace

Index gradient_begin(ShardPlan const& plan, Index group) {
  Gradient const& gradient = plan.reductions.gradients.of_group(group);
  return plan.layout.keeps_shares_of_gradients() ? gradient.share_offset
                                                 : gradient.offset + plan.layout.share(group).begin;
}

std::vector<RepeatedCollective> collectives_of(std::vector<Segment> const& segments, ShardPlan const& plan) {
  Tally const tally(segments);
  std::vector<RepeatedCollective> all;
  std::map<std::tuple<std::vector<Index>, std::size_t, std::uint64_t>, std::size_t> rows; ///< of buckets that are alike
  for (auto const& [bucket, count] : plan.reductions.buckets.by_size())
    for (std::size_t number = 0; number < plan.reductions.collectives.size(); ++number) {
      std::uint64_t const times =
          tally.reductions_of(bucket.run, plan.reductions.is_of_sums(plan.reductions.collectives[number]));
      if (times == 0) continue;
      auto const [row, is_new] = rows.try_emplace({shape_of(bucket, plan.layout), number, times}, all.size());
      if (is_new) {
        PlannedCollective const step = plan.reductions.reduction_of(bucket, plan.layout)[number];
        all.push_back({"gradients", step, bytes_per_value(plan.reductions.storage),
                       plan.reductions.pieces_of(bucket, step, plan.layout), 0});
      }
      all[row->second].times += times * count;
    }
  std::ptrdiff_t const reductions = std::ssize(all);
  for (auto const& [unit, times] : tally.gathers) add_gather(all, reductions, plan, unit, times);
  add_exchanges(all, plan, tally);
  return all;
}

std::vector<RepeatedCollective> publications_of(StepProgram const& outline, ShardPlan const& plan) {
  std::set<Index> units;
  for (std::vector<Segment> const* part : {&outline.update, &outline.step})
    for (Segment const& segment : *part)
      for (Instruction const& instruction : segment.instructions)
        if (instruction.act == Act::publish) units.insert(instruction.subject);
  std::vector<RepeatedCollective> all;
  for (Index const unit : units) add_gather(all, 0, plan, unit, 1);
  return all;
}

std::uint64_t launches_of(std::vector<Segment> const& segments, ShardPlan const& plan) {
  std::vector<std::uint64_t> const shares = shares_of_runs(plan);
  std::uint64_t launches = 0;
  for (Segment const& segment : segments)
    for (Instruction const& instruction : segment.instructions)
      launches += own_launches(plan, shares, instruction, segment.times);
  return launches + launches_of(collectives_of(segments, plan), plan);
}

StateMoves moves_of(std::vector<Segment> const& segments, ShardPlan const& plan) {
  StateMoves moves;
  if (!plan.offload.moves_parameters()) return moves;
  for (auto const& [unit, times] : Tally(segments).gathers)
    moves = moves + times * gather_moves(plan.offload, plan.layout, unit);
  return moves;
}

std::uint64_t launches_of(std::vector<RepeatedCollective> const& all, ShardPlan const& plan) {
  std::uint64_t launches = 0;
  for (RepeatedCollective const& repeated : all)
    launches +=
        repeated.times * kernels_of(schedule_of(repeated.planned, plan.layout.mesh, plan.layout.rank), repeated.pieces);
  return launches;
}

} // namespace trainstone
