#include "comm/simulation/sum_trees.hpp"

#include <algorithm>
#include <queue>
#include <utility>

namespace trainstone::Impl {

Sum SumTrees::add(Sum a, Sum b) {
  if (std::pair(lowest(b), b) < std::pair(lowest(a), a)) std::swap(a, b);
  auto const [entry, is_new] = m_numbers.try_emplace({a, b}, m_ranks + std::ssize(m_nodes));
  if (is_new) m_nodes.push_back({a, b, lowest(a)});
  return entry->second;
}

std::vector<std::uint64_t> SumTrees::contributions(Sum sum) const {
  std::vector<std::uint64_t> times(static_cast<std::size_t>(m_ranks), 0);
  // from parents to children, each tree once however often it is contained: broken schedules add sums to themselves
  std::unordered_map<Sum, std::uint64_t> open{{sum, 1}};
  std::priority_queue<Sum> order;
  order.push(sum);
  while (!order.empty()) {
    Sum const largest = order.top();
    order.pop();
    std::uint64_t const contained = open[largest];
    if (is_rank(largest)) {
      times[static_cast<std::size_t>(largest)] = contained;
      continue;
    }
    for (Sum const child : {node(largest).left, node(largest).right}) {
      auto const [entry, is_new] = open.try_emplace(child, 0);
      entry->second += contained;
      if (is_new) order.push(child);
    }
  }
  return times;
}

std::string SumTrees::text(Sum sum) const {
  if (is_rank(sum)) return std::to_string(sum);
  return "(" + text(node(sum).left) + "+" + text(node(sum).right) + ")";
}

} // namespace trainstone::Impl
