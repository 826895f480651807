#pragma once

// Loops of reduce.hpp; included by reduce.cpp alone. One place says in which order parts are added: tree_of. Up to
// eight parts are read and added in registers; more go through a block of sums that stays in the first-level cache.

#include "core/index.hpp"
#include "core/types.hpp"
#include "kernels/common/flat.hpp"

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace trainstone::Impl {

template <class T>
inline constexpr bool is_narrow = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

/// What T is added in.
template <class T>
using Wide = std::conditional_t<is_narrow<T>, float, T>;

/// What T is stored as: g++ 16 does not vectorise loops that copy a bf16 or fp16 as a whole.
template <class T>
using Stored = std::conditional_t<is_narrow<T>, std::uint16_t, T>;

template <class T>
KOKKOS_INLINE_FUNCTION Wide<T> load(T const& from) {
  if constexpr (is_narrow<T>) {
    return to_float(from);
  } else {
    return from;
  }
}

template <class T>
KOKKOS_INLINE_FUNCTION Stored<T> narrowed(Wide<T> value) {
  if constexpr (is_narrow<T>) {
    return from_float<T>(value).bits;
  } else {
    return value;
  }
}

template <class T>
KOKKOS_INLINE_FUNCTION void store(T& to, Stored<T> value) {
  if constexpr (is_narrow<T>) {
    to.bits = value;
  } else {
    to = value;
  }
}

/// By value: device code cannot refer to a constant of a namespace, as Kokkos::min does.
KOKKOS_INLINE_FUNCTION Index smaller(Index a, Index b) { return a < b ? a : b; }

struct Sum {
  template <class T>
  KOKKOS_INLINE_FUNCTION T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) { // wraps around where the signed sum would be undefined
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

/// The bits of a floating-point number.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

/// Of numbers that compare equal only zeros differ in their bits. These give +0 and -0 whichever of them comes first,
/// because ranks may compare in different orders and shall end with the same bits.
struct Max {
  template <class T>
  KOKKOS_INLINE_FUNCTION T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return b > a ? b : a;
    } else {
      T const equal = Kokkos::bit_cast<T>(Kokkos::bit_cast<Bits<T>>(a) & Kokkos::bit_cast<Bits<T>>(b));
      T const larger = b > a || b != b ? b : a;
      return a == b ? equal : larger;
    }
  }
};

struct Min {
  template <class T>
  KOKKOS_INLINE_FUNCTION T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return b < a ? b : a;
    } else {
      T const equal = Kokkos::bit_cast<T>(Kokkos::bit_cast<Bits<T>>(a) | Kokkos::bit_cast<Bits<T>>(b));
      T const smaller = b < a || b != b ? b : a;
      return a == b ? equal : smaller;
    }
  }
};

/// Where a combine reads and writes. The arrays of pointers lie on the host.
template <class T>
struct Operands {
  T const* const* parts;
  Index part_count;
  T* const* targets;
  Index target_count;
};

/// Of `count` parts, two at least, those on the left of the balanced tree: the largest power of two that is smaller.
/// A function of our own, because device code may not call std::bit_floor.
KOKKOS_INLINE_FUNCTION constexpr int left_parts(int count) {
  int left = 1;
  while (2 * left < count) left *= 2;
  return left;
}

/// Sixteen bytes of elements, which a device reads and writes at once.
template <class T>
using Pack = Packet<T, packet_of<T>>;

/// Of a part: a pointer to elements, or a pack of them.
template <class Part>
using ElementOfPart = std::remove_cvref_t<decltype(std::declval<Part const&>()[0])>;

/// Element i of `count` parts from number `first` on, added in the balanced tree.
template <int first, int count, class Part, class Combine>
KOKKOS_INLINE_FUNCTION Wide<ElementOfPart<Part>> tree_of(Part const* parts, Index i, Combine combine) {
  if constexpr (count == 1) {
    return load(parts[first][i]);
  } else {
    constexpr int left = left_parts(count);
    return combine(tree_of<first, left>(parts, i, combine), tree_of<first + left, count - left>(parts, i, combine));
  }
}

/// Elements begin ... end-1 of a fixed number of parts and targets.
template <int part_count, int target_count, class T, class Combine>
KOKKOS_INLINE_FUNCTION void combine_directly(Operands<T> const& operands, Index begin, Index end, Combine combine) {
  T const* parts[part_count]; // copies, which no write to a target can change
  T* targets[target_count];
  for (int part = 0; part < part_count; ++part) parts[part] = operands.parts[part];
  for (int target = 0; target < target_count; ++target) targets[target] = operands.targets[target];
#pragma omp simd
  for (Index i = begin; i < end; ++i) {
    Stored<T> const value = narrowed<T>(tree_of<0, part_count>(parts, i, combine));
    for (int target = 0; target < target_count; ++target) store(targets[target][i], value);
  }
}

/// Elements that are summed up at a time when there are many parts or targets: 2 KiB of fp32.
inline constexpr Index sums_at_once = 512;
/// Parts that are read together.
inline constexpr Index parts_at_once = 8;
/// Sums that wait for their siblings while many parts are added.
inline constexpr int most_rows = 14;
inline constexpr Index most_parts = parts_at_once << (most_rows - 1);

template <int part_count, class T, class Combine>
KOKKOS_INLINE_FUNCTION void sum_directly(T const* const* parts, Index begin, Index count, Wide<T>* sums,
                                         Combine combine) {
  T const* copies[part_count];
  for (int part = 0; part < part_count; ++part) copies[part] = parts[part] + begin;
#pragma omp simd
  for (Index i = 0; i < count; ++i) sums[i] = tree_of<0, part_count>(copies, i, combine);
}

/// sums (count) = the tree over 1 to parts_at_once parts.
template <class T, class Combine>
KOKKOS_INLINE_FUNCTION void sum_of_few(T const* const* parts, Index part_count, Index begin, Index count, Wide<T>* sums,
                                       Combine combine) {
  switch (part_count) {
  case 1: return sum_directly<1>(parts, begin, count, sums, combine);
  case 2: return sum_directly<2>(parts, begin, count, sums, combine);
  case 3: return sum_directly<3>(parts, begin, count, sums, combine);
  case 4: return sum_directly<4>(parts, begin, count, sums, combine);
  case 5: return sum_directly<5>(parts, begin, count, sums, combine);
  case 6: return sum_directly<6>(parts, begin, count, sums, combine);
  case 7: return sum_directly<7>(parts, begin, count, sums, combine);
  default: return sum_directly<8>(parts, begin, count, sums, combine);
  }
}

template <class Value, class Combine>
KOKKOS_INLINE_FUNCTION void add_sums(Value* to, Value const* from, Index count, Combine combine) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) to[i] = combine(to[i], from[i]);
}

/// sums[0] (count) = the tree over any number of parts: a binary counter over groups of parts_at_once, whose digits
/// are the rows of `sums`. Row d holds the sum of 2^d whole groups, waiting for its right-hand sibling.
template <class T, class Combine>
KOKKOS_INLINE_FUNCTION void sum_of_many(Operands<T> const& operands, Index begin, Index count,
                                        Wide<T> (*sums)[sums_at_once], Combine combine) {
  int levels[most_rows]; // of the rows in use, descending
  int rows = 0;
  for (Index first = 0; first < operands.part_count; first += parts_at_once) {
    Index const parts = smaller(parts_at_once, operands.part_count - first);
    sum_of_few(operands.parts + first, parts, begin, count, sums[rows], combine);
    levels[rows++] = 0;
    bool const last = first + parts == operands.part_count;
    while (rows > 1 && (last || levels[rows - 2] == levels[rows - 1])) {
      add_sums(sums[rows - 2], sums[rows - 1], count, combine);
      --rows;
      ++levels[rows - 1];
    }
  }
}

/// Any number of parts and targets.
template <class T, class Combine>
KOKKOS_INLINE_FUNCTION void combine_in_blocks(Operands<T> const& operands, Index begin, Index end, Combine combine) {
  Wide<T> sums[most_rows][sums_at_once];
  for (Index first = begin; first < end; first += sums_at_once) {
    Index const count = smaller(sums_at_once, end - first);
    sum_of_many(operands, first, count, sums, combine);
    T* const to = operands.targets[0] + first;
#pragma omp simd
    for (Index i = 0; i < count; ++i) store(to[i], narrowed<T>(sums[0][i]));
    for (Index target = 1; target < operands.target_count; ++target) {
      memcpy(operands.targets[target] + first, to, static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

/// Element i of up to 2^(counter_rows - 1) parts: the binary counter of sum_of_many, of parts instead of groups.
template <int counter_rows, class T, class Combine>
KOKKOS_INLINE_FUNCTION Wide<T> sum_of_element(T const* const* parts, Index part_count, Index i, Combine combine) {
  Wide<T> sums[counter_rows] = {}; // g++ 16 does not see that there is a part
  int levels[counter_rows];        // descending
  int rows = 0;
  for (Index part = 0; part < part_count; ++part) {
    sums[rows] = load(parts[part][i]);
    levels[rows++] = 0;
    bool const last = part + 1 == part_count;
    while (rows > 1 && (last || levels[rows - 2] == levels[rows - 1])) {
      --rows;
      sums[rows - 1] = combine(sums[rows - 1], sums[rows]);
      ++levels[rows - 1];
    }
  }
  return sums[0];
}

/// All targets = the tree over all parts, elements begin ... end-1. Directly where it is worth it: two parts, and the
/// neighbours of small nodes, with the result at one of them or at all. That is 1.2 to 1.4 times faster than in blocks.
/// fp16 is always summed in blocks: g++ 16 vectorises its conversions only one at a time (else 10 times slower).
template <class T, class Combine>
KOKKOS_INLINE_FUNCTION void combine_range(Operands<T> const& operands, Index begin, Index end, Combine combine) {
  if constexpr (!std::is_same_v<T, fp16>) {
    bool const at_one = operands.target_count == 1, at_all = operands.target_count == operands.part_count;
    switch (operands.part_count) {
    case 2:
      if (at_one) return combine_directly<2, 1>(operands, begin, end, combine);
      if (at_all) return combine_directly<2, 2>(operands, begin, end, combine);
      break;
    case 4:
      if (at_one) return combine_directly<4, 1>(operands, begin, end, combine);
      if (at_all) return combine_directly<4, 4>(operands, begin, end, combine);
      break;
    case 8:
      if (at_one) return combine_directly<8, 1>(operands, begin, end, combine);
      if (at_all) return combine_directly<8, 8>(operands, begin, end, combine);
      break;
    default: break;
    }
  }
  combine_in_blocks(operands, begin, end, combine);
}

} // namespace trainstone::Impl
