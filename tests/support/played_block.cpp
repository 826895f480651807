#include "support/played_block.hpp"

#include "core/types.hpp"
#include "kernels/cuda/attention_rows.hpp"

#include <algorithm>

namespace trainstone::test {

int PlayedLane::block() const { return m_block->m_block; }

void PlayedLane::block_barrier() { m_block->wait(0, m_block->m_fibers.size(), &PlayedBlock::Fiber::block_barriers); }

void PlayedLane::warp_barrier() {
  m_block->wait(static_cast<std::size_t>(m_thread / 32 * 32), 32, &PlayedBlock::Fiber::warp_barriers);
}

void PlayedLane::barrier_of(std::size_t count) {
  m_block->wait(static_cast<std::size_t>(m_thread) / count * count, count, &PlayedBlock::Fiber::group_barriers);
}

namespace {

template <class Stored>
float value_of(std::uint16_t bits) {
  Stored stored;
  std::memcpy(&stored, &bits, 2);
  return to_float(stored);
}

template <class Stored>
std::uint16_t bits_of(float value) {
  Stored const stored = from_float<Stored>(value);
  std::uint16_t bits;
  std::memcpy(&bits, &stored, 2);
  return bits;
}

} // namespace

template <>
float PlayedLane::value<Cuda::Bf16>(std::uint32_t pair, int which) {
  return value_of<bf16>(static_cast<std::uint16_t>(pair >> 16 * which));
}
template <>
float PlayedLane::value<Cuda::Fp16>(std::uint32_t pair, int which) {
  return value_of<fp16>(static_cast<std::uint16_t>(pair >> 16 * which));
}
template <>
std::uint16_t PlayedLane::bits<Cuda::Bf16>(float value) {
  return bits_of<bf16>(value);
}
template <>
std::uint16_t PlayedLane::bits<Cuda::Fp16>(float value) {
  return bits_of<fp16>(value);
}

PlayedBlock::PlayedBlock(int block, int threads, std::function<void(PlayedLane&)> kernel)
    : m_block(block), m_kernel(std::move(kernel)), m_fibers(static_cast<std::size_t>(threads)) {
  for (int thread = 0; thread < threads; ++thread) m_lanes.emplace_back(*this, thread);
  for (auto& given : m_given) given.resize(m_fibers.size());
  playing() = this;
  for (Fiber& fiber : m_fibers) {
    fiber.stack = std::make_unique<std::byte[]>(stack_bytes);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = &m_main;
    makecontext(&fiber.context, &PlayedBlock::enter, 0);
  }
  while (std::ranges::any_of(m_fibers, [](Fiber const& fiber) { return !fiber.is_over; }))
    for (m_running = 0; m_running < m_fibers.size(); ++m_running)
      if (!m_fibers[m_running].is_over) swapcontext(&m_main, &m_fibers[m_running].context);
}

void PlayedBlock::enter() {
  PlayedBlock& block = *playing();
  std::size_t const own = block.m_running;
  block.m_kernel(block.m_lanes[own]);
  block.m_fibers[own].is_over = true;
}

void PlayedBlock::wait(std::size_t first, std::size_t count, std::int64_t Fiber::* counter) {
  std::int64_t const own = ++(m_fibers[m_running].*counter);
  auto const is_there = [&](Fiber const& fiber) { return fiber.*counter >= own; };
  auto const begin = m_fibers.begin() + static_cast<std::ptrdiff_t>(first);
  while (!std::all_of(begin, begin + static_cast<std::ptrdiff_t>(count), is_there)) yield();
}

} // namespace trainstone::test
