#include "parallel/pipeline/pipeline_stages.hpp"

#include "core/error.hpp"
#include "core/plural.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

constexpr double infinite = std::numeric_limits<double>::infinity();

/// Finds cuts stage by stage: what the first stages cost at best if they end before block k.
class Cutter {
public:
  Cutter(BlockCosts const& costs, Index stages, Index micro_batches)
      : m_costs(costs),
        m_stages(stages),
        m_micro_batches(static_cast<double>(micro_batches)),
        m_before(costs.blocks.size() + 1, 0) {
    std::partial_sum(costs.blocks.begin(), costs.blocks.end(), m_before.begin() + 1);
  }

  std::vector<Index> best() const {
    double const bound = cut(infinite, [&](Index stage, Index begin, Index end, double so_far) {
                           return std::max(so_far, term(stage, begin, end));
                         }).first;
    return cut(bound,
               [&](Index stage, Index begin, Index end, double so_far) {
                 double const load = cost(stage, begin, end);
                 return so_far + load * load;
               })
        .second;
  }

private:
  Index blocks() const { return std::ssize(m_costs.blocks); }

  double cost(Index stage, Index begin, Index end) const {
    return m_before[at(end)] - m_before[at(begin)] + (stage == 0 ? m_costs.embed : 0) +
           (stage + 1 == m_stages ? m_costs.head : 0);
  }

  /// Of the bound.
  double term(Index stage, Index begin, Index end) const {
    return m_before[at(begin)] + (stage > 0 ? m_costs.embed : 0) + m_micro_batches * cost(stage, begin, end);
  }

  /// The least value of all cuts whose terms are at most `most`, and the cut. \param[in] add  the value with one more
  /// stage
  template <class Add>
  std::pair<double, std::vector<Index>> cut(double most, Add const& add) const {
    std::vector<std::vector<double>> least(at(m_stages + 1), std::vector<double>(m_before.size(), infinite));
    std::vector<std::vector<Index>> begins(at(m_stages), std::vector<Index>(m_before.size(), 0));
    least[0][0] = 0;
    for (Index stage = 0; stage < m_stages; ++stage)
      for (Index end = 0; end <= blocks(); ++end)
        for (Index begin = 0; begin <= end; ++begin) {
          double const so_far = least[at(stage)][at(begin)];
          if (begin == end && 0 < stage && stage + 1 < m_stages) continue; // it has neither embed nor head
          if (so_far == infinite || term(stage, begin, end) > most) continue;
          double const value = add(stage, begin, end, so_far);
          if (value > least[at(stage + 1)][at(end)]) continue;
          least[at(stage + 1)][at(end)] = value;
          begins[at(stage)][at(end)] = begin;
        }
    std::vector<Index> counts(at(m_stages));
    for (Index stage = m_stages, end = blocks(); stage-- > 0;) {
      Index const begin = begins[at(stage)][at(end)];
      counts[at(stage)] = end - begin;
      end = begin;
    }
    return {least.back().back(), counts};
  }

  BlockCosts const& m_costs;
  Index m_stages;
  double m_micro_batches;
  std::vector<double> m_before; ///< costs of the first k blocks
};

} // namespace

std::vector<Index> even_stages(Index blocks, Index stages) {
  std::vector<Index> counts;
  Index const alone =
      stages == most_stages(blocks) ? 1 : 0; // the embedding: every block is a stage between the first and the last
  for (Index stage = 0; stage < stages; ++stage)
    counts.push_back(blocks / stages + (alone <= stage && stage < blocks % stages + alone ? 1 : 0));
  return counts;
}

std::vector<Index> balanced_stages(BlockCosts const& costs, Index stages, Index micro_batches) {
  return Cutter(costs, stages, micro_batches).best();
}

std::vector<double> stage_costs(BlockCosts const& costs, std::vector<Index> const& cut) {
  std::vector<double> sums;
  auto next = costs.blocks.begin();
  for (Index const blocks : cut) {
    sums.push_back(std::accumulate(next, next + blocks, 0.0));
    next += blocks;
  }
  sums.front() += costs.embed;
  sums.back() += costs.head;
  return sums;
}

double stages_bound(BlockCosts const& costs, std::vector<Index> const& cut, Index micro_batches) {
  double before = 0, bound = 0;
  for (double const cost : stage_costs(costs, cut)) {
    bound = std::max(bound, before + static_cast<double>(micro_batches) * cost);
    before += cost;
  }
  return bound;
}

StageCut parse_stage_cut(std::string_view name) {
  if (name == "even") return StageCut::even;
  if (name == "balanced") return StageCut::balanced;
  throw InputError(
      fmt::format("\"{}\" is no cut into stages, must be even, balanced or a list of numbers of blocks", name));
}

std::vector<Index> cut_stages(StageCut cut, std::vector<Index> const& listed, BlockCosts const& costs, Index stages,
                              Index micro_batches) {
  Index const blocks = std::ssize(costs.blocks);
  if (cut == StageCut::even) return even_stages(blocks, stages);
  if (cut == StageCut::balanced) return balanced_stages(costs, stages, micro_batches);
  std::vector<Index> const even = even_stages(blocks, stages);
  TRAINSTONE_REQUIRE_INPUT(std::ssize(listed) == stages, "the list of blocks has {} for {}, for example [{}]",
                           plural(std::ssize(listed), "number"), plural(stages, "stage"), fmt::join(even, ", "));
  bool const counts = std::ranges::all_of(listed, [](Index number) { return number >= 0; });
  TRAINSTONE_REQUIRE_INPUT(counts, "the blocks [{}] are not all 0 or more, for example [{}]", fmt::join(listed, ", "),
                           fmt::join(even, ", "));
  Index const sum = std::accumulate(listed.begin(), listed.end(), Index{0});
  TRAINSTONE_REQUIRE_INPUT(sum == blocks, "the blocks [{}] are {} in sum, the model has {}, for example [{}]",
                           fmt::join(listed, ", "), sum, blocks, fmt::join(even, ", "));
  return listed;
}

} // namespace trainstone
