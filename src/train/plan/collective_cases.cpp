#include "train/plan/collective_cases.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/measurement/exact_data.hpp"

#include <algorithm>
#include <set>

namespace trainstone {

namespace {

void set_elements(PlannedCollective& planned, Index elements) {
  Problem& problem = planned.problem;
  problem.partition =
      even_problem(problem.collective, elements, problem.topology, problem.root, problem.servers).partition;
}

/// Of the rank that begins or collects, whose messages are among the longest.
Index longest_move(PlannedCollective const& planned) {
  Index longest = 0;
  for (Round const& round : make_schedule(planned.problem, planned.algorithm, planned.problem.root).rounds)
    for (Move const& move : round)
      if (move.is_message()) longest = std::max(longest, move.size());
  return longest;
}

/// The least number that gives a message which is cut in two, into unequal parts; all where there is none so long.
Index elements_with_a_cut_message(PlannedCollective planned, Storage storage) {
  Index const longest = longest_message(MessageBuffers::staged, bytes_per_value(storage));
  Index const wanted = longest + longest / 16;
  Index const all = planned.problem.elements();
  Index const enough = 2 * wanted * planned.problem.ranks(); // the shortest messages are halves of a rank's block
  set_elements(planned, std::min(all, enough));
  Index const moved = longest_move(planned);
  if (moved > wanted) return std::max<Index>(1, planned.problem.elements() * wanted / moved);
  return all <= enough ? all : wanted; // not all, but no message is longer: segments, or memory that ranks share
}

/// The type, or fp32 if sums of it are not exact over so many ranks.
Storage storage_to_try(Storage storage, Rank ranks) {
  return ExactData::takes(element_type_of(storage), ranks) ? storage : Storage::fp32;
}

/// Of each of its parts the same share, and of each something.
Bucket shortened(Bucket bucket, Index share_elements) {
  Index const all = bucket.share_elements();
  for (BucketPart& part : bucket.parts) {
    Index const size = part.of_share.size();
    part.of_share.end = part.of_share.begin + (size * share_elements + all - 1) / all;
  }
  return bucket;
}

/// The bucket with most pieces, and the largest one.
std::vector<Bucket> buckets_to_try(BucketPlan const& plan) {
  std::vector<Bucket> all;
  for (auto const& [bucket, count] : plan.by_size()) all.push_back(bucket);
  auto const most_parts = std::ranges::max_element(
      all, {}, [](Bucket const& one) { return std::pair(one.parts.size(), one.share_elements()); });
  auto const largest = std::ranges::max_element(all, {}, &Bucket::share_elements);
  if (most_parts == largest) return {*largest};
  return {*most_parts, *largest};
}

/// The bucket's collective number `step`.
CollectiveCase case_of_bucket(ShardPlan const& plan, Bucket const& bucket, std::size_t step) {
  PlannedCollective planned = plan.reductions.reduction_of(bucket, plan.layout)[step];
  Storage const storage = storage_to_try(plan.reductions.storage, planned.problem.ranks());
  Index const all = planned.problem.elements();
  Index const elements = elements_with_a_cut_message(planned, storage);
  Pieces const pieces = plan.reductions.pieces_of(bucket, planned, plan.layout);
  if (pieces.is_contiguous() || pieces.contiguous(0, all) == all) { // wherever that one piece begins
    set_elements(planned, elements);
    return {planned, storage};
  }
  Index const share = bucket.share_elements();
  Bucket const part = shortened(bucket, std::max<Index>(1, share * elements / all));
  planned = plan.reductions.reduction_of(part, plan.layout)[step];
  return {planned, storage, plan.reductions.pieces_of(part, planned, plan.layout)};
}

/// In blocks of every kind: none, one element, fewer than ranks, not as many in each, many.
void append_every_kind(std::vector<CollectiveCase>& cases, PlannedCollective planned) {
  std::set<Rank> roots{planned.problem.root};
  if (has_root(planned.problem.collective)) roots.insert(planned.problem.ranks() - 1); // owners of units
  for (Rank const root : roots) {
    planned.problem.root = root;
    for (Index const elements : {Index{0}, Index{1}, Index{7}, Index{1009}, most_elements_tried}) {
      set_elements(planned, elements);
      cases.push_back({planned});
    }
  }
}

} // namespace

std::vector<CollectiveCase> collective_cases(ShardPlan const& plan) {
  std::vector<CollectiveCase> cases;
  for (std::size_t step = 0; step < plan.reductions.collectives.size(); ++step) {
    append_every_kind(cases, plan.reductions.collectives[step]);
    for (Bucket const& bucket : buckets_to_try(plan.reductions.buckets))
      cases.push_back(case_of_bucket(plan, bucket, step));
  }
  for (SliceExchange const exchange :
       {SliceExchange::sum, SliceExchange::norm_sums, SliceExchange::gather, SliceExchange::hidden})
    if (auto const found = plan.tensor.exchanges.find(exchange); found != plan.tensor.exchanges.end()) {
      PlannedCollective const& collective = found->second.collective;
      append_every_kind(cases, collective);
      if (collective.problem.elements() <= most_elements_tried)
        cases.push_back({collective, Storage::fp32, found->second.pieces});
    }
  if (plan.pipeline.table) append_every_kind(cases, *plan.pipeline.table);
  if (plan.gathers.of_unit.front().empty()) return cases;
  append_every_kind(cases, plan.gathers.of_unit.front().front().planned);
  auto const elements = [](auto const& gathers) { return gathers.front().planned.problem.elements(); };
  PlannedCollective largest = std::ranges::max_element(plan.gathers.of_unit, {}, elements)->front().planned;
  Storage const storage = storage_to_try(plan.layout.types.parameters, largest.problem.ranks());
  set_elements(largest, elements_with_a_cut_message(largest, storage));
  cases.push_back({largest, storage});
  return cases;
}

} // namespace trainstone
