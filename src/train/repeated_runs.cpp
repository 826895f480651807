#include "train/repeated_runs.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace trainstone {

namespace {

// Members are named one by one, so that a new one is an error of the compiler here.

bool are_equal(TokenBuckets const& one, TokenBuckets const& other) {
  auto const& [order, begin, token] = one;
  return order == other.order && begin == other.begin && token == other.token;
}

bool are_equal(Dropout const& one, Dropout const& other) {
  auto const& [rate, seed, first_sample, site, first_head, first_position, first_feature] = one;
  return rate == other.rate && seed == other.seed && first_sample == other.first_sample && site == other.site &&
         first_head == other.first_head && first_position == other.first_position &&
         first_feature == other.first_feature;
}

bool are_equal(MicroBatch const& one, MicroBatch const& other) {
  auto const& [tokens, targets, buckets, gradient_scale, dropout] = one;
  return tokens == other.tokens && targets == other.targets && are_equal(buckets, other.buckets) &&
         gradient_scale == other.gradient_scale && are_equal(dropout, other.dropout);
}

} // namespace

bool ComputedRun::operator==(ComputedRun const& other) const {
  return mode == other.mode && held_out == other.held_out &&
         std::ranges::equal(steps, other.steps, [](Step const& one, Step const& another) {
           return one.instruction == another.instruction && are_equal(one.batch, another.batch);
         });
}

void RepeatedRuns::play(ExecutionSpace const& exec, ComputedRun run, Compute const& compute) {
  auto const found = std::ranges::find(m_known, run, &Known::run);
  if (found == m_known.end()) {
    compute(run);
    for (Known& known : m_known) known.graph.reset(); // Kokkos may have exchanged its scratch for this run
    m_known.push_front({std::move(run)});
    if (m_known.size() > m_most) m_known.pop_back();
    return;
  }
  m_known.splice(m_known.begin(), m_known, found); // found stays where it is in memory
  if (!found->graph) found->graph.emplace(exec, [&known = found->run, compute] { compute(known); });
  found->graph->start(exec);
}

} // namespace trainstone
