#include "comm/measurement/exact_data.hpp"

#include "core/error.hpp"
#include "core/types.hpp"

#include <algorithm>
#include <array>
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

} // namespace

ExactData::ExactData(Problem problem, Operation operation, ElementType type)
    : m_problem(std::move(problem)),
      m_operation(operation),
      m_largest(std::min(exact_limit(type) / m_problem.ranks(), std::int64_t{1} << 28)) {
  TRAINSTONE_REQUIRE_INPUT(m_largest >= 1, "sums over {} ranks cannot be checked exactly in {}: at most {}",
                           m_problem.ranks(), to_string(type), exact_limit(type));
}

/// Counts up through all values; every time round one further, and every rank from another one on.
void ExactData::contribution(Rank rank, Index first, std::span<std::int64_t> values) const {
  std::int64_t const period = 2 * m_largest + 1;
  std::int64_t const start = rank * (period / 3 + 1);
  auto const size = static_cast<Index>(values.size());
  for (Index done = 0; done < size;) {
    Index const i = first + done;
    std::int64_t const value = (i + i / period + start) % period;
    Index const end = done + std::min({size - done, period - value, period - i % period});
    for (Index k = done; k < end; ++k) values[static_cast<std::size_t>(k)] = value - m_largest + (k - done);
    done = end;
  }
}

/// Of the result's elements first, first + 1, ...
void ExactData::expected(Impl::Expected const& result, Index first, std::span<std::int64_t> values) const {
  contribution(result.first, result.element + first, values);
  std::array<std::int64_t, block> memory;
  std::span<std::int64_t> const other(memory.data(), values.size());
  for (Rank rank = result.first + 1; rank < result.last; ++rank) {
    contribution(rank, result.element + first, other);
    for (std::size_t k = 0; k < values.size(); ++k) {
      switch (m_operation) {
      case Operation::sum: values[k] += other[k]; break;
      case Operation::max: values[k] = std::max(values[k], other[k]); break;
      case Operation::min: values[k] = std::min(values[k], other[k]); break;
      }
    }
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
    contribution(rank, first, std::span(values.data(), count));
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
