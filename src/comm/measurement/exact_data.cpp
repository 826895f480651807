#include "comm/measurement/exact_data.hpp"

#include "core/error.hpp"
#include "core/types.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <type_traits>

namespace trainstone {

namespace {

constexpr std::size_t block = 1024; // elements worked out at a time

/// Up to which all whole numbers are exact.
std::int64_t exact_limit(ElementType type) {
  switch (type) {
  case ElementType::bfloat16: return std::int64_t{1} << 8;
  case ElementType::float16: return std::int64_t{1} << 11;
  case ElementType::float32: return std::int64_t{1} << 24;
  case ElementType::float64: return std::int64_t{1} << 53;
  case ElementType::int32: return (std::int64_t{1} << 31) - 1;
  case ElementType::int64: return std::int64_t{1} << 62;
  }
  return 0;
}

template <class T>
constexpr bool is_16_bit = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

template <class T>
T from_integer(std::int64_t value) {
  if constexpr (is_16_bit<T>) {
    return from_float<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
bool equal(T actual, T expected) {
  if constexpr (is_16_bit<T>) {
    return to_float(actual) == to_float(expected);
  } else {
    return actual == expected;
  }
}

/// Numbers that have nothing to do with each other, of any that differ. Source: Fast Splittable Pseudorandom Number
/// Generators (splitmix64), doi:10.1145/2660193.2660195.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

} // namespace

bool ExactData::takes(ElementType type, Rank ranks) { return exact_limit(type) >= ranks; }

ExactData::ExactData(Problem problem, Operation operation, ElementType type)
    : m_problem(std::move(problem)),
      m_operation(operation),
      m_largest(std::min(exact_limit(type) / m_problem.ranks(), std::int64_t{1} << 28)),
      m_period(2 * m_largest + 1) {
  TRAINSTONE_REQUIRE_INPUT(takes(type, m_problem.ranks()),
                           "sums over {} ranks cannot be checked exactly in {}: at most {}", m_problem.ranks(),
                           to_string(type), exact_limit(type));
}

/// With which value, counted from the smallest one, a rank begins its `round`-th way through all values. If there are
/// three times as many values as ranks, every rank begins elsewhere: in one of three places far apart, or up to three
/// values behind the rank that has begun there before. Else some ranks begin alike, but others in every round; if they
/// were apart as before, the sum of as many ranks as there are values would be the same in all elements.
std::int64_t ExactData::start(Rank rank, Index round) const {
  if (m_period / 3 >= m_problem.ranks()) return (round + rank * (m_period / 3 + 1)) % m_period;
  return static_cast<std::int64_t>(mix(static_cast<std::uint64_t>(round) << 32 | static_cast<std::uint32_t>(rank)) %
                                   static_cast<std::uint64_t>(m_period));
}

/// What ranks first ... last-1 contribute to elements element, element + 1, ... together. Every rank counts up through
/// all values, round after round: from one element to the next the sum grows by the number of ranks, less a period for
/// every rank that comes from the largest value to the smallest one.
void ExactData::sum(Rank first, Rank last, Index element, std::span<std::int64_t> values) const {
  while (!values.empty()) {
    Index const round = element / m_period, place = element % m_period;
    Index const count = std::min(std::ssize(values), m_period - place);
    auto const here = values.first(static_cast<std::size_t>(count));
    std::ranges::fill(here, last - first);
    here[0] = 0;
    for (Rank rank = first; rank < last; ++rank) {
      std::int64_t const value = (place + start(rank, round)) % m_period;
      here[0] += value - m_largest;
      if (m_period - value < count) here[static_cast<std::size_t>(m_period - value)] -= m_period;
    }
    std::partial_sum(here.begin(), here.end(), here.begin());
    element += count;
    values = values.subspan(static_cast<std::size_t>(count));
  }
}

/// Of the result's elements first, first + 1, ...
void ExactData::expected(Impl::Expected const& result, Index first, std::span<std::int64_t> values) const {
  Index const element = result.element + first;
  if (m_operation == Operation::sum) return sum(result.first, result.last, element, values);
  sum(result.first, result.first + 1, element, values);
  std::array<std::int64_t, block> memory;
  std::span<std::int64_t> const other(memory.data(), values.size());
  for (Rank rank = result.first + 1; rank < result.last; ++rank) {
    sum(rank, rank + 1, element, other);
    std::ranges::transform(values, other, values.begin(), [this](std::int64_t a, std::int64_t b) {
      return m_operation == Operation::max ? std::max(a, b) : std::min(a, b);
    });
  }
}

template <class T>
void ExactData::fill(Rank rank, std::span<T> data) const {
  // no contribution, and one that neither a maximum nor a minimum would hide
  std::int64_t const poison = (m_largest + 2) * (m_operation == Operation::min ? -1 : 1);
  std::ranges::fill(data, from_integer<T>(poison));
  Range const held = Impl::initially_held(m_problem, rank);
  std::array<std::int64_t, block> values;
  for (Index first = held.begin; first < held.end; first += block) {
    auto const count = static_cast<std::size_t>(std::min<Index>(block, held.end - first));
    sum(rank, rank + 1, first, std::span(values.data(), count));
    std::transform(values.data(), values.data() + count, data.data() + first, from_integer<T>);
  }
}

template <class T>
Index ExactData::wrong(Rank rank, std::span<T const> data) const {
  Index count = 0;
  std::array<std::int64_t, block> values;
  for (Impl::Expected const& result : Impl::expected_results(m_problem, rank)) {
    for (Index first = 0; first < result.range.size(); first += block) {
      auto const size = static_cast<std::size_t>(std::min<Index>(block, result.range.size() - first));
      expected(result, first, std::span(values.data(), size));
      T const* const actual = data.data() + result.range.begin + first;
      for (std::size_t k = 0; k < size; ++k) count += equal(actual[k], from_integer<T>(values[k])) ? 0 : 1;
    }
  }
  return count;
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void ExactData::fill<T>(Rank, std::span<T>) const;                                                          \
  template Index ExactData::wrong<T>(Rank, std::span<T const>) const;
TRAINSTONE_INSTANTIATE(float)
TRAINSTONE_INSTANTIATE(double)
TRAINSTONE_INSTANTIATE(std::int32_t)
TRAINSTONE_INSTANTIATE(std::int64_t)
TRAINSTONE_INSTANTIATE(bf16)
TRAINSTONE_INSTANTIATE(fp16)
#undef TRAINSTONE_INSTANTIATE

} // namespace trainstone
