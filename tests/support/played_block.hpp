#pragma once

// A block of lanes that the host plays: each lane is a thread of control of its own, and an instruction of a warp ends
// when all its lanes have reached it. Copies arrive as late as the kernel allows. For kernels of src/kernels/cuda.

#include "kernels/cuda/lane.hpp"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace trainstone::test {

class PlayedBlock;

class PlayedLane {
public:
  PlayedLane(PlayedBlock& block, int thread) : m_block(&block), m_thread(thread) {}

  int thread() const { return m_thread; }
  int warp() const { return m_thread / 32; }
  int block() const;
  /// FLOPs of all products that were played so far.
  static std::uint64_t& multiplied() {
    static std::uint64_t flops = 0;
    return flops;
  }

  void copy(void* shared, void const* global, bool is_there) {
    m_copies.push_back({shared, global, 16, is_there, m_group});
  }
  void copy(float* shared, float const* global, bool is_there) {
    m_copies.push_back({shared, global, sizeof(float), is_there, m_group});
  }
  void end_copies() { ++m_group; }
  template <int pending>
  void wait_copies() {
    while (!m_copies.empty() && m_copies.front().group < m_group - pending) {
      Copy const& copy = m_copies.front();
      if (copy.is_there)
        std::memcpy(copy.shared, copy.global, copy.bytes);
      else
        std::memset(copy.shared, 0, copy.bytes);
      m_copies.pop_front();
    }
  }
  void block_barrier();
  void warp_barrier();
  void show_copies() const {}
  void group_barrier() { warp_barrier(); }
  template <class... Sums>
  void await_products(Sums&...) const {}

  template <Cuda::Turn turn>
  void load(std::uint32_t (&r)[4], void const* row) {
    auto const rows = exchange(row);
    int const lane = m_thread % 32, g = lane / 4, t = lane % 4;
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t pair[2];
      for (int i = 0; i < 2; ++i) {
        int const from = turn == Cuda::Turn::none ? g : 2 * t + i, column = turn == Cuda::Turn::none ? 2 * t + i : g;
        std::memcpy(&pair[i], static_cast<std::byte const*>(rows[8 * matrix + from]) + 2 * column, 2);
      }
      std::memcpy(&r[matrix], pair, 4);
    }
  }

  template <class T>
  void multiply(Cuda::FragmentC& c, Cuda::FragmentA const& a, std::uint32_t b0, std::uint32_t b1) {
    struct Both {
      Cuda::FragmentA a;
      std::uint32_t b[2];
    };
    auto const all = exchange(Both{a, {b0, b1}});
    int const lane = m_thread % 32, g = lane / 4, t = lane % 4;
    if (lane == 0) multiplied() += std::uint64_t{2} * 16 * 8 * 16;
    for (int j = 0; j < 4; ++j) {
      int const row = g + j / 2 * 8, column = 2 * t + j % 2;
      float sum = c.c[j];
      for (int k = 0; k < 16; ++k) {
        std::uint32_t const left = all[row % 8 * 4 + k % 8 / 2].a.r[row / 8 + k / 8 * 2],
                            right = all[column * 4 + k % 8 / 2].b[k / 8];
        sum += value<T>(left, k % 2) * value<T>(right, k % 2);
      }
      c.c[j] = sum;
    }
  }

  template <class T>
  std::uint32_t pack(float low, float high) const {
    return bits<T>(low) | static_cast<std::uint32_t>(bits<T>(high)) << 16;
  }
  template <class Value>
  Value from_lane_beside(Value value, int difference) {
    return exchange(value)[static_cast<std::size_t>(m_thread % 32 ^ difference)];
  }
  bool any(bool here) {
    auto const all = exchange(here);
    return std::ranges::find(all, true) != all.end();
  }
  template <class T>
  float low(std::uint32_t pair) const {
    return value<T>(pair, 0);
  }
  template <class T>
  float high(std::uint32_t pair) const {
    return value<T>(pair, 1);
  }
  float power_of_2(float x) const { return std::exp2(x); }
  float log2(float x) const { return std::log2(x); }

protected:
  struct Copy {
    void* shared;
    void const* global;
    std::size_t bytes;
    bool is_there;
    int group;
  };

  /// Of `count` lanes that follow each other.
  void barrier_of(std::size_t count);

  /// What every lane of the warp has given.
  template <class Value>
  std::array<Value, 32> exchange(Value const& own);

  template <class T>
  static float value(std::uint32_t pair, int which);
  template <class T>
  static std::uint16_t bits(float value);

  PlayedBlock* m_block;
  int m_thread;
  int m_group = 0;
  std::deque<Copy> m_copies;
};

/// Runs `kernel` once for each of `threads` lanes.
class PlayedBlock {
public:
  PlayedBlock(int block, int threads, std::function<void(PlayedLane&)> kernel);
  PlayedBlock(PlayedBlock const&) = delete;
  PlayedBlock& operator=(PlayedBlock const&) = delete;

private:
  friend class PlayedLane;
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    std::int64_t warp_barriers = 0, block_barriers = 0, group_barriers = 0;
    bool is_over = false;
  };
  static constexpr std::size_t stack_bytes = 256 << 10;
  static constexpr std::size_t most_given = 64; ///< bytes that a lane gives in an exchange

  static void enter();
  void yield() { swapcontext(&m_fibers[m_running].context, &m_main); }
  /// Until all of the fibers [first, first + count) have counted as far as the one that runs.
  void wait(std::size_t first, std::size_t count, std::int64_t Fiber::* counter);

  static PlayedBlock*& playing() {
    static PlayedBlock* block = nullptr;
    return block;
  }

  int m_block;
  std::function<void(PlayedLane&)> m_kernel;
  std::vector<Fiber> m_fibers;
  std::vector<PlayedLane> m_lanes;
  /// By turn, as a lane may be one exchange ahead.
  std::array<std::vector<std::array<std::byte, most_given>>, 2> m_given;
  std::size_t m_running = 0;
  ucontext_t m_main;
};

template <class Value>
std::array<Value, 32> PlayedLane::exchange(Value const& own) {
  static_assert(sizeof(Value) <= PlayedBlock::most_given);
  auto const thread = static_cast<std::size_t>(m_thread);
  auto& given = m_block->m_given[static_cast<std::size_t>(m_block->m_fibers[thread].warp_barriers % 2)];
  std::memcpy(given[thread].data(), &own, sizeof(Value));
  warp_barrier();
  std::array<Value, 32> all;
  for (std::size_t i = 0; i < 32; ++i) std::memcpy(&all[i], given[thread / 32 * 32 + i].data(), sizeof(Value));
  return all;
}

} // namespace trainstone::test
