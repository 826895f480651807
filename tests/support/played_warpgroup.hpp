#pragma once

// Lanes of a warpgroup that the host plays (played_block.hpp), with products as wgmma has them. What they read from
// shared memory is found by their descriptors, and only if copies were shown to them. Their sums are no numbers until
// they are awaited. What a kernel may not do is noted.

#include "kernels/cuda/warpgroup_lane.hpp"
#include "support/played_block.hpp"

#include <limits>
#include <span>
#include <string>
#include <vector>

namespace trainstone::test {

/// Copies arrive when they are awaited, and products read their factors at once; or copies arrive at once, and products
/// read when they are awaited. A kernel has to be right with both.
enum class Timing { late_copies, late_products };

/// What a block has in shared memory.
struct PlayedMemory {
  std::byte* data;              ///< as lanes see it
  std::vector<std::byte> shown; ///< as products see it
  Timing timing;
  std::vector<std::string> faults = {};
  std::vector<std::int64_t> products = {}; ///< of each lane

  PlayedMemory(std::span<std::byte> memory, Timing when)
      : data(memory.data()), shown(memory.size(), std::byte{0xFF}), timing(when) {}
  /// Once all lanes have come to their end.
  void check_products() {
    for (std::size_t lane = 0; lane < products.size(); ++lane)
      if (products[lane] != products[lane / Cuda::lanes_of_warpgroup * Cuda::lanes_of_warpgroup])
        return note("lanes of a warpgroup have not multiplied together");
  }
  void note(char const* fault) {
    if (faults.size() < 5) faults.emplace_back(fault);
  }
};

class PlayedWarpgroupLane : public PlayedLane {
public:
  PlayedWarpgroupLane(PlayedLane const& lane, PlayedMemory& memory) : PlayedLane(lane), m_memory(&memory) {}

  template <class Pointer>
  void copy(Pointer* shared, void const* global, bool is_there) {
    PlayedLane::copy(shared, static_cast<Pointer const*>(global), is_there);
    Copy const& copy = m_copies.back();
    if (m_memory->timing == Timing::late_products) {
      arrive(copy);
      show(copy);
    }
  }
  template <int pending>
  void wait_copies() {
    std::ranges::copy_if(m_copies, std::back_inserter(m_arrived),
                         [&](Copy const& copy) { return copy.group < m_group - pending; });
    if (m_memory->timing == Timing::late_copies)
      PlayedLane::wait_copies<pending>();
    else
      std::erase_if(m_copies, [&](Copy const& copy) { return copy.group < m_group - pending; });
  }
  void show_copies() {
    for (Copy const& copy : m_arrived)
      if (m_memory->timing == Timing::late_copies) show(copy);
    m_arrived.clear();
  }
  void group_barrier() { barrier_of(Cuda::lanes_of_warpgroup); }

  Cuda::Factor factor(void const* first, int leading, int stride) const {
    return Cuda::factor_at(begin_of_shared +
                               static_cast<std::uint32_t>(static_cast<std::byte const*>(first) - m_memory->data),
                           static_cast<std::uint32_t>(leading), static_cast<std::uint32_t>(stride));
  }

  void begin_products() { m_has_begun = true; }
  void end_products() { m_has_ended = true; }
  template <int... counts>
  void await_products(Cuda::FragmentC (&... sums)[1][counts]) {
    if (!m_pending.empty() && !m_has_ended) m_memory->note("products are awaited that no group has");
    for (Pending& pending : m_pending) {
      if (((pending.sums.data() != sums[0]) && ...)) m_memory->note("sums are left that products still write");
      if (!is_untouched(pending.sums)) m_memory->note("sums are written while products are in flight");
      for (auto const& product : pending.products) product(pending.values);
      std::ranges::copy(pending.values, pending.sums.begin());
    }
    m_pending.clear();
    m_has_begun = m_has_ended = false;
  }

  template <class T, int fragments>
  void multiply_rows(Cuda::FragmentC (&sums)[fragments], Cuda::Factor left, Cuda::Factor right, bool adds) {
    check_same(left, right);
    add<T, fragments>(sums, right, adds, Major::rows, [this, left](int row, int k) {
      return element<T>(left, Major::rows, m_thread % 128 / 32 * 16 + row, k);
    });
  }

  template <class T, int fragments>
  void multiply_fragments(Cuda::FragmentC (&sums)[fragments], Cuda::FragmentA const& left, Cuda::Factor right) {
    check_same(right, right);
    auto const all = exchange(left); // a warp has all columns of its 16 rows
    add<T, fragments>(sums, right, true, Major::columns, [all](int row, int k) {
      return value<T>(all[static_cast<std::size_t>(row % 8 * 4 + k % 8 / 2)].r[row / 8 + k / 8 * 2], k % 2);
    });
  }

private:
  /// Along what elements of a factor are beside each other: along what is summed over, or across it.
  enum class Major { rows, columns };
  static constexpr std::uint32_t begin_of_shared = 3072;

  struct Pending {
    std::span<Cuda::FragmentC> sums;
    std::vector<Cuda::FragmentC> values; ///< until they may be seen
    std::vector<std::function<void(std::vector<Cuda::FragmentC>&)>> products;
  };

  void arrive(Copy const& copy) const {
    if (copy.is_there)
      std::memcpy(copy.shared, copy.global, copy.bytes);
    else
      std::memset(copy.shared, 0, copy.bytes);
  }
  void show(Copy const& copy) const {
    auto const place = static_cast<std::size_t>(static_cast<std::byte*>(copy.shared) - m_memory->data);
    std::memcpy(m_memory->shown.data() + place, copy.shared, copy.bytes);
  }

  /// Element k of row i: of both factors, what is summed over is called k.
  template <class T>
  float element(Cuda::Factor factor, Major major, int i, int k) const {
    std::uint64_t const bits = factor.descriptor;
    auto const field = [&](int first, int count) {
      return static_cast<std::uint32_t>(bits >> first & ((1U << count) - 1));
    };
    std::uint32_t const start = field(0, 14) << 4, leading = field(16, 14) << 4, stride = field(32, 14) << 4;
    if (field(62, 2) != 1 || field(49, 3) != 0) m_memory->note("a factor has another swizzle");
    auto const row = static_cast<std::uint32_t>(i), column = static_cast<std::uint32_t>(k);
    std::uint32_t const address =
        major == Major::rows ? start + row / 8 * stride + row % 8 * 128 + 2 * column
                             : start + row / 64 * leading + row % 64 * 2 + column / 8 * stride + column % 8 * 128;
    std::uint32_t const place = (address ^ (address >> 7 & 7) << 4) - begin_of_shared;
    if (place + 2 > m_memory->shown.size()) {
      m_memory->note("a factor is outside of the block's memory");
      return 0;
    }
    std::uint16_t pair[2] = {};
    std::memcpy(pair, m_memory->shown.data() + place, 2);
    std::uint32_t word;
    std::memcpy(&word, pair, 4);
    return value<T>(word, 0);
  }

  void check_same(Cuda::Factor left, Cuda::Factor right) {
    std::array const own{left.descriptor, right.descriptor};
    for (auto const& other : exchange(own))
      if (other != own) m_memory->note("lanes of a warp have different factors");
    if (!m_has_begun) m_memory->note("products have not begun");
    auto const own_place = static_cast<std::size_t>(m_thread);
    if (m_memory->products.size() <= own_place) m_memory->products.resize(own_place + 1);
    ++m_memory->products[own_place];
  }

  template <class T, int fragments, class Left>
  void add(Cuda::FragmentC (&sums)[fragments], Cuda::Factor right, bool adds, Major major, Left const& left) {
    if (m_thread % Cuda::lanes_of_warpgroup == 0)
      multiplied() += std::uint64_t{2} * Cuda::rows_of_warpgroup * 8 * fragments * 16;
    auto const product = [this, right, adds, major, left](std::vector<Cuda::FragmentC>& values) {
      int const lane = m_thread % 32, g = lane / 4, t = lane % 4;
      float rows[2][16];
      for (int half = 0; half < 2; ++half)
        for (int k = 0; k < 16; ++k) rows[half][k] = left(g + 8 * half, k);
      for (int i = 0; i < fragments; ++i)
        for (int beside = 0; beside < 2; ++beside) {
          float column[16];
          for (int k = 0; k < 16; ++k) column[k] = element<T>(right, major, 8 * i + 2 * t + beside, k);
          for (int half = 0; half < 2; ++half) {
            float& value = values[static_cast<std::size_t>(i)].c[2 * half + beside];
            float sum = adds ? value : 0;
            for (int k = 0; k < 16; ++k) sum += rows[half][k] * column[k];
            value = sum;
          }
        }
    };
    auto found = std::ranges::find(m_pending, std::begin(sums), [](Pending const& one) { return one.sums.data(); });
    if (found == m_pending.end()) {
      found = m_pending.insert(found, Pending{sums, {std::begin(sums), std::end(sums)}, {}});
      for (Cuda::FragmentC& fragment : sums) std::ranges::fill(fragment.c, nothing);
    }
    if (m_memory->timing == Timing::late_copies)
      product(found->values);
    else
      found->products.push_back(product);
  }

  static constexpr float nothing = std::numeric_limits<float>::quiet_NaN();
  static bool is_untouched(std::span<Cuda::FragmentC const> sums) {
    return std::ranges::all_of(sums, [](Cuda::FragmentC const& one) {
      return std::ranges::all_of(one.c, [](float value) { return std::memcmp(&value, &nothing, sizeof nothing) == 0; });
    });
  }

  PlayedMemory* m_memory;
  std::vector<Copy> m_arrived; ///< and not yet shown
  std::vector<Pending> m_pending;
  bool m_has_begun = false, m_has_ended = false;
};

} // namespace trainstone::test
