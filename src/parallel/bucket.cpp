#include "parallel/bucket.hpp"

#include "core/error.hpp"
#include "kernels/norm.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

/// Collects runs from the last group to the first.
class Cutter {
public:
  Cutter(ParameterTable const& table, Mesh const& mesh) : m_table(table), m_mesh(mesh) {}

  /// Groups first ... last, in slices of the given ends of the share; several slices only of a single group.
  void add_run(Index first, Index last, std::vector<Index> const& slice_ends) {
    Index const first_bucket = std::ssize(m_plan.buckets), run = std::ssize(m_plan.runs);
    Index begin = 0;
    for (Index const end : slice_ends) {
      m_plan.buckets.push_back({run, {{last, {begin, end}}}});
      begin = end;
    }
    if (slice_ends.empty()) {
      m_plan.buckets.push_back({run, {}});
      for (Index g = first; g <= last; ++g) m_plan.buckets.back().parts.push_back({g, {0, share(g)}});
    }
    ParameterGroup const& end_group = group(last);
    m_plan.runs.push_back({first,
                           last,
                           {group(first).offset, end_group.offset + end_group.padded},
                           first_bucket,
                           std::ssize(m_plan.buckets) - 1});
  }

  /// Ends of slices of about `elements` of all shares, the first one of about `first`.
  std::vector<Index> slices(Index g, Index first, Index elements) const {
    Index const granule = norm_block * m_mesh.replicas, granules = share(g) / granule;
    auto const in_granules = [&](Index wanted) { return std::max<Index>(1, wanted / (granule * m_mesh.shard)); };
    std::vector<Index> ends;
    for (Index done = 0; done < granules;) {
      done = std::min(granules, done + in_granules(ends.empty() ? first : elements));
      ends.push_back(done * granule);
    }
    return ends;
  }

  ParameterGroup const& group(Index g) const { return m_table.groups()[static_cast<std::size_t>(g)]; }
  Index groups() const { return std::ssize(m_table.groups()); }
  BucketPlan take() { return std::move(m_plan); }

private:
  Index share(Index g) const { return group(g).padded / m_mesh.shard; }

  ParameterTable const& m_table;
  Mesh const& m_mesh;
  BucketPlan m_plan;
};

void cut_by_size(Cutter& cutter, Index first_limit, Index limit) {
  for (Index last = cutter.groups() - 1; last >= 0;) {
    bool const leads = last == cutter.groups() - 1;
    if (cutter.group(last).padded > (leads ? std::min(first_limit, limit) : limit)) {
      cutter.add_run(last, last, cutter.slices(last, leads ? std::min(first_limit, limit) : limit, limit));
      --last;
      continue;
    }
    Index first = last, elements = cutter.group(last).padded;
    while (!leads && first > 0 && elements + cutter.group(first - 1).padded <= limit)
      elements += cutter.group(--first).padded;
    cutter.add_run(first, last, {});
    last = first - 1;
  }
}

void cut_by_tensor(Cutter& cutter, ParameterTable const& table) {
  for (Index g = cutter.groups() - 1; g >= 0; --g) {
    std::vector<Index> ends;
    for (ParameterTensor const& tensor : table.tensors())
      if (tensor.group == g) ends.push_back(tensor.offset + tensor.size() - cutter.group(g).offset);
    ends.back() = cutter.group(g).padded;
    cutter.add_run(g, g, ends);
  }
}

void append_member(Pieces& pieces, Bucket const& bucket, BucketPlan const& plan, ParameterTable const& table,
                   Rank member, Rank members) {
  Index const begin = plan.runs[static_cast<std::size_t>(bucket.run)].memory.begin;
  for (BucketPart const& part : bucket.parts) {
    ParameterGroup const& group = table.groups()[static_cast<std::size_t>(part.group)];
    Index const share = group.offset - begin + share_of(group, member, members).begin;
    pieces.append({share + part.of_share.begin, share + part.of_share.end});
  }
}

} // namespace

Index Bucket::share_elements() const {
  Index sum = 0;
  for (BucketPart const& part : parts) sum += part.of_share.size();
  return sum;
}

BucketPlan make_buckets(ParameterTable const& table, Mesh const& mesh, ParallelConfig const& config,
                        std::size_t element_bytes) {
  Cutter cutter(table, mesh);
  auto const elements = [&](double bytes) {
    return std::max<Index>(1, static_cast<Index>(bytes / static_cast<double>(element_bytes)));
  };
  switch (config.granularity) {
  case Granularity::step: cutter.add_run(0, cutter.groups() - 1, {}); break;
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

Pieces pieces_of(Bucket const& bucket, BucketPlan const& plan, ParameterTable const& table, Rank members) {
  Pieces pieces;
  for (Rank member = 0; member < members; ++member) append_member(pieces, bucket, plan, table, member, members);
  return pieces;
}

Pieces pieces_of_member(Bucket const& bucket, BucketPlan const& plan, ParameterTable const& table, Rank member,
                        Rank members) {
  Pieces pieces;
  append_member(pieces, bucket, plan, table, member, members);
  return pieces;
}

} // namespace trainstone
