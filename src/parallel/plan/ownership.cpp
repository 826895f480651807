#include "parallel/plan/ownership.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Of every group.
std::vector<Rank> balanced_owners(std::vector<ParameterGroup> const& groups, std::vector<ParameterUnit> const& units,
                                  Rank members) {
  using Load = std::pair<Index, Rank>; // elements so far, of whom
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (Rank member = 0; member < members; ++member) loads.emplace(0, member);
  std::vector<std::size_t> by_size(units.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size, std::greater<>(), [&](std::size_t unit) { return units[unit].padded; });
  std::vector<Rank> owners(groups.size());
  for (std::size_t const unit : by_size) {
    auto const [elements, member] = loads.top();
    loads.pop();
    loads.emplace(elements + units[unit].padded, member);
    for (Index group = units[unit].first_group; group <= units[unit].last_group; ++group) owners[at(group)] = member;
  }
  return owners;
}

} // namespace

Ownership::Ownership(std::vector<ParameterGroup> const& groups, std::vector<Rank> owners, Rank members, Rank first)
    : m_owners(std::move(owners)), m_first(first) {
  Index const all = groups.back().offset + groups.back().padded;
  Rank const parts = members - first;
  std::vector<Index> elements(at(members), 0);
  if (m_owners.empty()) std::fill(elements.begin() + first, elements.end(), all / parts);
  for (ParameterGroup const& group : groups) {
    if (m_owners.empty()) {
      TRAINSTONE_REQUIRE(group.padded % parts == 0, "{} elements in equal parts for {} ranks", group.padded, parts);
      m_offsets.push_back(group.offset / parts);
    } else {
      Index& so_far = elements[at(m_owners[m_sizes.size()])];
      m_offsets.push_back(so_far);
      so_far += group.padded;
    }
    m_sizes.push_back(group.padded);
  }
  m_shares = Partition::of_sizes(elements);
}

Ownership Ownership::of_parts(std::vector<ParameterGroup> const& groups, Rank members) {
  return Ownership(groups, {}, members);
}

Ownership Ownership::of_servers(std::vector<ParameterGroup> const& groups, Rank members, Rank servers) {
  return Ownership(groups, {}, members, members - servers);
}

Ownership Ownership::of_units(std::vector<ParameterGroup> const& groups, std::vector<ParameterUnit> const& units,
                              Rank members) {
  return Ownership(groups, balanced_owners(groups, units, members), members);
}

Ownership Ownership::of_one(std::vector<ParameterGroup> const& groups, Rank members, Rank owner) {
  return Ownership(groups, std::vector<Rank>(groups.size(), owner), members);
}

std::optional<Rank> Ownership::owner(Index group) const {
  return m_owners.empty() ? std::nullopt : std::optional(m_owners[at(group)]);
}

Range Ownership::share(Index group, Rank member) const {
  Index const size = share_elements(group);
  if (m_owners.empty())
    return member < m_first ? Range{} : Range{(member - m_first) * size, (member - m_first + 1) * size};
  return {0, m_owners[at(group)] == member ? size : 0};
}

Index Ownership::offset(Index group, Rank member) const {
  bool const owns = m_owners.empty() ? member >= m_first : m_owners[at(group)] == member;
  return owns ? m_offsets[at(group)] : 0;
}

} // namespace trainstone
