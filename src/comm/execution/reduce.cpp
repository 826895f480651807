#include "comm/execution/reduce.hpp"

#include "comm/execution/reduce_impl.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace trainstone {

namespace {

using Blocks = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;

/// What a thread combines at a time.
constexpr Index block_bytes = 65536;

template <class T, class Combine>
struct CombineBlocks {
  Impl::Operands<T> operands;
  Combine combine;
  Index n;
  Index block;

  KOKKOS_FUNCTION void operator()(Index i) const {
    Impl::combine_range(operands, i * block, Kokkos::min(n, (i + 1) * block), combine);
  }
};

template <class T>
struct CopyBlocks {
  T const* from;
  T* to;
  Index n;
  Index block;

  KOKKOS_FUNCTION void operator()(Index i) const {
    Index const count = Kokkos::min(n - i * block, block);
    memcpy(to + i * block, from + i * block, static_cast<std::size_t>(count) * sizeof(T));
  }
};

Index divide_up(Index n, Index by) { return (n + by - 1) / by; }

/// body(i) for all blocks of n elements.
template <class Body>
void launch_blocks(ExecutionSpace const& exec, Kernel const& kernel, Body const& body) {
  TRAINSTONE_REQUIRE(launches_wait, "{} finds its operands' addresses in host memory, kernels run on {}", kernel.label,
                     ExecutionSpace::name());
  Index const blocks = divide_up(body.n, body.block);
  if (blocks > 1 && kernel.bytes > largest_inline_bytes) return launch_for(kernel, Blocks(exec, 0, blocks), body);
  launch_inline(kernel, exec, [&] {
    for (Index i = 0; i < blocks; ++i) body(i);
  });
}

template <class T, class Combine>
void launch_combine(ExecutionSpace const& exec, char const* label, Impl::Operands<T> const& operands, Index n,
                    Combine combine) {
  auto const parts = static_cast<std::uint64_t>(operands.part_count);
  auto const targets = static_cast<std::uint64_t>(operands.target_count);
  auto const size = static_cast<std::uint64_t>(n);
  launch_blocks(exec, {label, Phase::communication, (parts - 1) * size, (parts + targets) * size * sizeof(T)},
                CombineBlocks<T, Combine>{operands, combine, n, block_bytes / Index{sizeof(T)}});
}

template <class T>
void launch_combine(ExecutionSpace const& exec, char const* label, Operation operation,
                    Impl::Operands<T> const& operands, Index n) {
  switch (operation) {
  case Operation::sum: return launch_combine(exec, label, operands, n, Impl::Sum{});
  case Operation::max: return launch_combine(exec, label, operands, n, Impl::Max{});
  case Operation::min: return launch_combine(exec, label, operands, n, Impl::Min{});
  }
}

void require_equal_extents(std::size_t from, std::size_t to) {
  TRAINSTONE_REQUIRE(from == to, "source has {} elements, target {}", from, to);
}

} // namespace

template <class T>
void reduce(ExecutionSpace const& exec, Operation operation, Vector<T const> from, Vector<T> to) {
  require_equal_extents(from.extent(0), to.extent(0));
  std::array<T const*, 2> const parts{to.data(), from.data()};
  T* const target = to.data();
  launch_combine<T>(exec, "trainstone::comm::reduce", operation, {parts.data(), 2, &target, 1},
                    static_cast<Index>(to.extent(0)));
}

template <class T>
void combine(ExecutionSpace const& exec, Operation operation, std::span<T const* const> parts, Index n,
             std::span<T* const> targets) {
  TRAINSTONE_REQUIRE(!parts.empty() && !targets.empty() && n >= 0, "{} parts of {} elements combined into {} targets",
                     parts.size(), n, targets.size());
  TRAINSTONE_REQUIRE(std::ssize(parts) <= Impl::most_parts, "{} parts, {} can be combined", parts.size(),
                     Impl::most_parts);
  launch_combine<T>(exec, "trainstone::comm::combine", operation,
                    {parts.data(), std::ssize(parts), targets.data(), std::ssize(targets)}, n);
}

template <class T>
void copy(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to) {
  require_equal_extents(from.extent(0), to.extent(0));
  auto const n = static_cast<Index>(to.extent(0));
  // One piece per thread: memcpy does better on long ones (64 MiB 1.15, 16 MiB 1.3 times faster than in 64 KiB).
  Index const block = std::max(Index{1}, divide_up(n, exec.concurrency()));
  launch_blocks(exec, {"trainstone::comm::copy", Phase::communication, 0, 2 * to.extent(0) * sizeof(T)},
                CopyBlocks<T>{from.data(), to.data(), n, block});
}

template void reduce(ExecutionSpace const&, Operation, Vector<float const>, Vector<float>);
template void reduce(ExecutionSpace const&, Operation, Vector<double const>, Vector<double>);
template void reduce(ExecutionSpace const&, Operation, Vector<std::int32_t const>, Vector<std::int32_t>);
template void reduce(ExecutionSpace const&, Operation, Vector<std::int64_t const>, Vector<std::int64_t>);
template void reduce(ExecutionSpace const&, Operation, Vector<bf16 const>, Vector<bf16>);
template void reduce(ExecutionSpace const&, Operation, Vector<fp16 const>, Vector<fp16>);
template void copy(ExecutionSpace const&, Vector<float const>, Vector<float>);
template void copy(ExecutionSpace const&, Vector<double const>, Vector<double>);
template void copy(ExecutionSpace const&, Vector<std::int32_t const>, Vector<std::int32_t>);
template void copy(ExecutionSpace const&, Vector<std::int64_t const>, Vector<std::int64_t>);
template void copy(ExecutionSpace const&, Vector<bf16 const>, Vector<bf16>);
template void copy(ExecutionSpace const&, Vector<fp16 const>, Vector<fp16>);
template void combine(ExecutionSpace const&, Operation, std::span<float const* const>, Index, std::span<float* const>);
template void combine(ExecutionSpace const&, Operation, std::span<double const* const>, Index,
                      std::span<double* const>);
template void combine(ExecutionSpace const&, Operation, std::span<std::int32_t const* const>, Index,
                      std::span<std::int32_t* const>);
template void combine(ExecutionSpace const&, Operation, std::span<std::int64_t const* const>, Index,
                      std::span<std::int64_t* const>);
template void combine(ExecutionSpace const&, Operation, std::span<bf16 const* const>, Index, std::span<bf16* const>);
template void combine(ExecutionSpace const&, Operation, std::span<fp16 const* const>, Index, std::span<fp16* const>);

} // namespace trainstone
