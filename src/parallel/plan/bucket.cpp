#include "parallel/plan/bucket.hpp"

#include "core/error.hpp"
#include "kernels/norm_block.hpp"
#include "model/parameter_runs.hpp"
#include "model/part.hpp"
#include "parallel/plan/strategies.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Whether backward completes root before the blocks: in a stage that has head, and embed not.
bool root_is_first(ParameterTable const& table) { return table.stage().head && !table.stage().embed; }

/// By unit: its chunk in the stage.
std::vector<Index> chunks_of_units(ParameterTable const& table) {
  ModelStage const& stage = table.stage();
  std::vector<Index> chunks(table.units().size(), 0);
  auto block = stage.blocks.begin();
  Index chunk = 0;
  for (Index const blocks : blocks_by_chunk(stage)) {
    for (auto const end = block + blocks; block < end; ++block) chunks[at(table.unit_of(*block))] = chunk;
    ++chunk;
  }
  return chunks;
}

/// Collects runs in the order of backward.
class Cutter {
public:
  Cutter(ParameterTable const& table, StateLayout const& layout, GradientLayout const& gradients)
      : m_table(table),
        m_layout(layout),
        m_gradients(gradients),
        m_granule(norm_block * layout.mesh.replica),
        m_chunks(chunks_of_units(table)) {
    for (Gradient const& one : gradients.gradients)
      m_plan.shares.push_back({one.group, layout.ownership.share_elements(one.group)});
  }

  /// Units first ... last as one bucket.
  BucketRun& add_run(Index first, Index last) {
    Index const buckets = m_plan.runs.empty() ? 0 : m_plan.buckets();
    UnitGradients const &begin = unit(first), &end = unit(last);
    Index const completed_by = root_is_first(m_table) && first == 0 && last > 0 ? 1 : first;
    m_plan.runs.push_back(
        {first, last, completed_by, {begin.first, end.last + 1}, {begin.memory.begin, end.memory.end}, buckets, 1});
    return m_plan.runs.back();
  }

  /// A unit in slices of about `elements` of all shares, the first one of about `first`.
  void add_slices(Index u, Index first, Index elements) {
    BucketRun& run = add_run(u, u);
    auto const of_share = [&](Index wanted) {
      return std::max<Index>(1, wanted / (m_granule * m_layout.ownership.owners())) * m_granule;
    };
    run.share = share_of(run);
    run.first_slice = std::min(run.share, of_share(first));
    run.slice = of_share(elements);
    run.buckets = 1 + (run.share - run.first_slice + run.slice - 1) / run.slice;
  }

  /// A unit in slices that are tensors; nothing is sharded.
  void add_tensors(Index u) {
    BucketRun& run = add_run(u, u);
    run.share = share_of(run);
    for (Index g = run.gradients.begin; g < run.gradients.end; ++g) {
      Gradient const& gradient = m_gradients.gradients[at(g)];
      Index const begin = gradient.offset - run.memory.begin, padded = m_layout.groups[at(gradient.group)].padded;
      for_each_tensor(m_table, gradient.group, {0, padded},
                      [&](ParameterTensor const&, Range const& here) { run.slice_ends.push_back(begin + here.end); });
      run.slice_ends.back() = begin + padded;
    }
    run.buckets = std::ssize(run.slice_ends);
  }

  Index elements(Index u) const { return unit(u).memory.size(); }
  Index units() const { return std::ssize(m_gradients.units); }
  /// Units in the order in which backward completes them.
  std::vector<Index> order() const {
    std::vector<Index> all;
    for (Index unit = units() - 1; unit >= 0; --unit) all.push_back(unit);
    if (root_is_first(m_table)) std::ranges::rotate(all, all.end() - 1);
    return all;
  }
  /// Whether the unit before `u` can be in a run with it.
  bool joins(Index u) const {
    auto const owner = [&](Index one) { return m_layout.ownership.owner(m_layout.units[at(one)].first_group); };
    if (u == 0 || (u == 1 && root_is_first(m_table))) return false;
    return owner(u - 1) == owner(u) && m_chunks[at(u - 1)] == m_chunks[at(u)];
  }
  BucketPlan take() { return std::move(m_plan); }

private:
  UnitGradients const& unit(Index u) const { return m_gradients.units[at(u)]; }

  Index share_of(BucketRun const& run) const {
    Index sum = 0;
    for (Index g = run.gradients.begin; g < run.gradients.end; ++g) sum += m_plan.shares[at(g)].elements;
    return sum;
  }

  ParameterTable const& m_table;
  StateLayout const& m_layout;
  GradientLayout const& m_gradients;
  Index m_granule; ///< slices of shares are multiples of it
  std::vector<Index> m_chunks;
  BucketPlan m_plan;
};

/// \param[in] joins  whether several units may be in one bucket
void cut_by_size(Cutter& cutter, Index first_limit, Index limit, bool joins) {
  std::vector<Index> const order = cutter.order();
  for (std::size_t next = 0; next < order.size();) {
    Index const last = order[next];
    bool const leads = next == 0;
    Index const first_slice = leads ? std::min(first_limit, limit) : limit;
    ++next;
    if (cutter.elements(last) > first_slice) {
      cutter.add_slices(last, first_slice, limit);
      continue;
    }
    Index first = last, elements = cutter.elements(last);
    for (; joins && !leads && cutter.joins(first) && elements + cutter.elements(first - 1) <= limit; ++next)
      elements += cutter.elements(--first);
    cutter.add_run(first, last);
  }
}

} // namespace

Index Bucket::share_elements() const {
  Index sum = 0;
  for (BucketPart const& part : parts) sum += part.of_share.size();
  return sum;
}

Range BucketRun::slice_of_share(Index number) const {
  if (!slice_ends.empty()) {
    auto const i = slice_ends.size() - 1 - at(number);
    return {i == 0 ? 0 : slice_ends[i - 1], slice_ends[i]};
  }
  Index const end = share - (number == 0 ? 0 : first_slice + (number - 1) * slice);
  return {number == 0 ? share - first_slice : std::max<Index>(0, end - slice), end};
}

Index BucketPlan::run_of_unit(Index unit) const {
  auto const run =
      std::ranges::find_if(runs, [=](BucketRun const& one) { return one.first_unit <= unit && unit <= one.last_unit; });
  TRAINSTONE_REQUIRE(run != runs.end(), "unit {} is in none of {} runs", unit, runs.size());
  return std::distance(runs.begin(), run);
}

Bucket BucketPlan::bucket(Index number) const {
  auto const after = std::ranges::upper_bound(runs, number, {}, &BucketRun::first_bucket);
  BucketRun const& run = *std::prev(after);
  bool const is_cut = run.share > 0;
  Range const slice = is_cut ? run.slice_of_share(number - run.first_bucket) : Range{};
  Bucket bucket{std::distance(runs.begin(), after) - 1, {}};
  Index first = 0; // of a gradient's share, in the shares of the unit
  for (Index g = run.gradients.begin; g < run.gradients.end; ++g) {
    auto const [group, elements] = shares[at(g)];
    Range const taken = is_cut ? Range{std::max<Index>(0, slice.begin - first), std::min(elements, slice.end - first)}
                               : Range{0, elements};
    if (taken.begin < taken.end) bucket.parts.push_back({g, group, taken});
    first += elements;
  }
  return bucket;
}

/// The first slice and the last one, and those around the places where one gradient ends and the next one begins.
std::vector<Index> BucketPlan::slices_apart(BucketRun const& run) const {
  std::set<Index> apart{0, run.buckets - 1};
  Index border = 0;
  for (Index g = run.gradients.begin; g < run.gradients.end; ++g) {
    border += shares[at(g)].elements;
    Index const from_end = run.share - border;
    Index const number = from_end < run.first_slice ? 0 : 1 + (from_end - run.first_slice) / run.slice;
    for (Index const one : {number - 1, number, number + 1})
      if (0 <= one && one < run.buckets) apart.insert(one);
  }
  return {apart.begin(), apart.end()};
}

std::vector<std::pair<Bucket, std::uint64_t>> BucketPlan::by_size() const {
  std::vector<std::pair<Bucket, std::uint64_t>> sizes;
  for (BucketRun const& run : runs) {
    bool const each = run.share == 0 || !run.slice_ends.empty();
    if (each) {
      for (Index i = 0; i < run.buckets; ++i) sizes.emplace_back(bucket(run.first_bucket + i), 1);
      continue;
    }
    Index next = 0;
    for (Index const apart : slices_apart(run)) { // those between are alike
      if (next < apart) sizes.emplace_back(bucket(run.first_bucket + next), static_cast<std::uint64_t>(apart - next));
      sizes.emplace_back(bucket(run.first_bucket + apart), 1);
      next = apart + 1;
    }
  }
  return sizes;
}

BucketPlan make_buckets(ParameterTable const& table, StateLayout const& layout, GradientLayout const& gradients,
                        ParallelConfig const& config, std::size_t element_bytes) {
  Cutter cutter(table, layout, gradients);
  auto const elements = [&](double bytes) {
    return std::max<Index>(1, static_cast<Index>(bytes / static_cast<double>(element_bytes)));
  };
  switch (granularity_of(config)) {
  case Granularity::step: cutter.add_run(0, cutter.units() - 1); break;
  case Granularity::tensor:
    TRAINSTONE_REQUIRE(layout.mesh.shard == 1, "tensors are not reduced one by one among {} shards", layout.mesh.shard);
    for (Index const unit : cutter.order()) cutter.add_tensors(unit);
    break;
  case Granularity::bucket: {
    bool const by_priority = has_priorities(config);
    Index const limit = elements(by_priority ? slice_bytes(config) : config.bucket_bytes);
    cut_by_size(cutter, by_priority ? limit : elements(config.first_bucket_bytes), limit, !by_priority);
    break;
  }
  }
  return cutter.take();
}

} // namespace trainstone
