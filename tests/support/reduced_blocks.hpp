#pragma once

// Blocks of elements that tests reduce, in all types, and how they compare the bits of results.

#include "comm/execution/reduce.hpp"
#include "core/random.hpp"
#include "core/types.hpp"
#include "support/views.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

/// For TEMPLATE_TEST_CASE.
#define ALL_TYPES float, double, std::int32_t, std::int64_t, bf16, fp16

namespace trainstone::test {

inline constexpr Operation operations[] = {Operation::sum, Operation::max, Operation::min};

template <class T>
constexpr bool is_narrow = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;
template <class T>
using Wide = std::conditional_t<is_narrow<T>, float, T>;

template <class T>
Wide<T> wide(T value) {
  if constexpr (is_narrow<T>) {
    return to_float(value);
  } else {
    return value;
  }
}

template <class T>
T stored(Wide<T> value) {
  if constexpr (is_narrow<T>) {
    return from_float<T>(value);
  } else {
    return value;
  }
}

template <class T>
constexpr bool is_floating = !std::is_integral_v<T>;

/// Different in every element and part; integers wrap around when they are added.
template <class T>
T input(std::size_t part, std::size_t i) {
  auto const word = random_block(7, RandomStream::tests, (part << 32) + i).words[0];
  if constexpr (is_floating<T>) {
    return stored<T>(static_cast<Wide<T>>(4 * uniform(word) - 2));
  } else {
    return static_cast<T>((std::uint64_t{word} << (8 * sizeof(T) - 32)) + i);
  }
}

/// `parts` blocks of n elements in kernels' memory, each behind a gap so that no two are aligned alike.
template <class T>
class Blocks {
public:
  /// Element i of a part is value(part, i).
  template <class Value>
  Blocks(std::size_t parts, std::size_t n, Value const& value) : m_parts(parts), m_n(n), m_memory(fill(value)) {}
  Blocks(std::size_t parts, std::size_t n) : Blocks(parts, n, input<T>) {}

  T* begin(std::size_t part) const { return m_memory.vector().data() + offset(part); }
  Vector<T> vector(std::size_t part) const { return Vector<T>(begin(part), m_n); }
  std::vector<T const*> sources() const {
    std::vector<T const*> found;
    for (std::size_t part = 0; part < m_parts; ++part) found.push_back(begin(part));
    return found;
  }
  std::vector<T*> targets(std::size_t count) const {
    std::vector<T*> found;
    for (std::size_t part = 0; part < count; ++part) found.push_back(begin(part));
    return found;
  }
  /// What all parts hold now.
  std::vector<std::vector<T>> values() const {
    std::vector<T> const all = m_memory.values();
    std::vector<std::vector<T>> found;
    for (std::size_t part = 0; part < m_parts; ++part)
      found.emplace_back(all.data() + offset(part), all.data() + offset(part) + m_n);
    return found;
  }

private:
  std::size_t offset(std::size_t part) const { return part * (m_n + 5) + part % 5; }
  template <class Value>
  std::vector<T> fill(Value const& value) const {
    std::vector<T> all(offset(m_parts), T{});
    for (std::size_t part = 0; part < m_parts; ++part)
      for (std::size_t i = 0; i < m_n; ++i) all[offset(part) + i] = value(part, i);
    return all;
  }

  std::size_t m_parts, m_n;
  DeviceTensor<T> m_memory;
};

/// Empty if all bits are equal; else the first elements that differ.
template <class T>
std::string different_bits(std::vector<T> const& actual, std::vector<T> const& expected) {
  if (expected.empty() || std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(T)) == 0) return "";
  std::string text;
  for (std::size_t i = 0, count = 0; i < expected.size() && count < 5; ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(T)) == 0) continue;
    text += fmt::format("\n  [{}] {}, expected {}", i, wide(actual[i]), wide(expected[i]));
    ++count;
  }
  return text;
}

} // namespace trainstone::test
