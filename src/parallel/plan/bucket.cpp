#include "parallel/plan/bucket.hpp"

#include "core/error.hpp"
#include "kernels/norm_block.hpp"
#include "model/parameter_runs.hpp"
#include "parallel/plan/strategies.hpp"

#include <algorithm>
#include <iterator>

namespace trainstone {

namespace {

/// Collects runs from the last group to the first.
class Cutter {
public:
  Cutter(ParameterTable const& table, Mesh const& mesh, Ownership const& ownership)
      : m_table(table), m_ownership(ownership), m_granule(norm_block * mesh.replica) {
    for (Index g = 0; g < groups(); ++g) m_plan.group_share.push_back(ownership.share_elements(g));
  }

  /// Groups first ... last as one bucket.
  BucketGroup& add_run(Index first, Index last) {
    Index const buckets = m_plan.runs.empty() ? 0 : m_plan.buckets();
    ParameterGroup const& end_group = group(last);
    m_plan.runs.push_back({first, last, {group(first).offset, end_group.offset + end_group.padded}, buckets, 1});
    return m_plan.runs.back();
  }

  /// A group in slices of about `elements` of all shares, the first one of about `first`.
  void add_slices(Index g, Index first, Index elements) {
    BucketGroup& run = add_run(g, g);
    auto const of_share = [&](Index wanted) {
      return std::max<Index>(1, wanted / (m_granule * m_ownership.owners())) * m_granule;
    };
    run.share = m_plan.group_share[static_cast<std::size_t>(g)];
    run.first_slice = std::min(run.share, of_share(first));
    run.slice = of_share(elements);
    run.buckets = 1 + (run.share - run.first_slice + run.slice - 1) / run.slice;
  }

  /// A group in slices that end where given; nothing is sharded.
  void add_slices(Index g, std::vector<Index> const& ends) {
    BucketGroup& run = add_run(g, g);
    run.share = m_plan.group_share[static_cast<std::size_t>(g)];
    run.slice_ends = ends;
    run.buckets = std::ssize(ends);
  }

  ParameterGroup const& group(Index g) const { return m_table.groups()[static_cast<std::size_t>(g)]; }
  Index groups() const { return std::ssize(m_table.groups()); }
  bool same_owners(Index g, Index h) const { return m_ownership.owner(g) == m_ownership.owner(h); }
  BucketPlan take() { return std::move(m_plan); }

private:
  ParameterTable const& m_table;
  Ownership const& m_ownership;
  Index m_granule; ///< slices of shares are multiples of it
  BucketPlan m_plan;
};

void cut_by_size(Cutter& cutter, Index first_limit, Index limit) {
  for (Index last = cutter.groups() - 1; last >= 0;) {
    bool const leads = last == cutter.groups() - 1;
    Index const first_slice = leads ? std::min(first_limit, limit) : limit;
    if (cutter.group(last).padded > first_slice) {
      cutter.add_slices(last, first_slice, limit);
      --last;
      continue;
    }
    Index first = last, elements = cutter.group(last).padded;
    while (!leads && first > 0 && elements + cutter.group(first - 1).padded <= limit &&
           cutter.same_owners(first - 1, last))
      elements += cutter.group(--first).padded;
    cutter.add_run(first, last);
    last = first - 1;
  }
}

void cut_by_tensor(Cutter& cutter, ParameterTable const& table) {
  for (Index g = cutter.groups() - 1; g >= 0; --g) {
    std::vector<Index> ends;
    for_each_tensor(table, g, {0, cutter.group(g).size},
                    [&](ParameterTensor const&, Range const& here) { ends.push_back(here.end); });
    ends.back() = cutter.group(g).padded;
    cutter.add_slices(g, ends);
  }
}

} // namespace

Index Bucket::share_elements() const {
  Index sum = 0;
  for (BucketPart const& part : parts) sum += part.of_share.size();
  return sum;
}

Range BucketGroup::slice_of_share(Index number) const {
  if (!slice_ends.empty()) {
    auto const i = slice_ends.size() - 1 - static_cast<std::size_t>(number);
    return {i == 0 ? 0 : slice_ends[i - 1], slice_ends[i]};
  }
  Index const end = share - (number == 0 ? 0 : first_slice + (number - 1) * slice);
  return {number == 0 ? share - first_slice : std::max<Index>(0, end - slice), end};
}

Index BucketPlan::run_of_group(Index group) const {
  auto const run = std::ranges::find_if(
      runs, [=](BucketGroup const& one) { return one.first_group <= group && group <= one.last_group; });
  TRAINSTONE_REQUIRE(run != runs.end(), "group {} is in none of {} runs", group, runs.size());
  return std::distance(runs.begin(), run);
}

Bucket BucketPlan::bucket(Index number) const {
  auto const after = std::ranges::upper_bound(runs, number, {}, &BucketGroup::first_bucket);
  BucketGroup const& run = *std::prev(after);
  Bucket bucket{std::distance(runs.begin(), after) - 1, {}};
  if (run.share > 0) {
    bucket.parts.push_back({run.first_group, run.slice_of_share(number - run.first_bucket)});
    return bucket;
  }
  for (Index g = run.first_group; g <= run.last_group; ++g)
    bucket.parts.push_back({g, {0, group_share[static_cast<std::size_t>(g)]}});
  return bucket;
}

std::vector<std::pair<Bucket, std::uint64_t>> BucketPlan::by_size() const {
  std::vector<std::pair<Bucket, std::uint64_t>> sizes;
  for (BucketGroup const& run : runs) {
    bool const alike = run.slice_ends.empty() && run.buckets > 2; // but for the first one and the last one
    if (alike) sizes.emplace_back(bucket(run.first_bucket + 1), static_cast<std::uint64_t>(run.buckets - 2));
    for (Index i = 0; i < run.buckets; ++i)
      if (!alike || i == 0 || i == run.buckets - 1) sizes.emplace_back(bucket(run.first_bucket + i), 1);
  }
  return sizes;
}

BucketPlan make_buckets(ParameterTable const& table, Mesh const& mesh, Ownership const& ownership,
                        ParallelConfig const& config, std::size_t element_bytes) {
  Cutter cutter(table, mesh, ownership);
  auto const elements = [&](double bytes) {
    return std::max<Index>(1, static_cast<Index>(bytes / static_cast<double>(element_bytes)));
  };
  switch (granularity_of(config)) {
  case Granularity::step: cutter.add_run(0, cutter.groups() - 1); break;
  case Granularity::tensor:
    TRAINSTONE_REQUIRE(mesh.shard == 1, "tensors are not reduced one by one among {} shards", mesh.shard);
    cut_by_tensor(cutter, table);
    break;
  case Granularity::bucket:
    cut_by_size(cutter, elements(config.first_bucket_bytes), elements(config.bucket_bytes));
    break;
  }
  return cutter.take();
}

} // namespace trainstone
