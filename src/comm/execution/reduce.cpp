#include "comm/execution/reduce.hpp"

#include "comm/execution/reduce_impl.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/push_bytes.hpp"
#include "kernels/common/large_body.hpp"

#include <algorithm>
#include <array>
#include <bit>
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

/// How the host copies bytes: (from, to, bytes).
using CopyBytes = void (*)(std::byte const*, std::byte*, std::size_t);

void plain_copy(std::byte const* from, std::byte* to, std::size_t bytes) { std::memcpy(to, from, bytes); }

/// Of the host only.
template <class T>
struct CopyPieces {
  CopyBytes copy_bytes;
  T const* from;
  T* to;
  Index n;
  Index block;

  void operator()(Index i) const {
    Index const count = Kokkos::min(n - i * block, block);
    copy_bytes(reinterpret_cast<std::byte const*>(from + i * block), reinterpret_cast<std::byte*>(to + i * block),
               static_cast<std::size_t>(count) * sizeof(T));
  }
};

/// Sums that wait for their siblings while a device's thread adds an element.
constexpr int device_rows = std::bit_width(static_cast<unsigned>(most_device_parts));

/// One element: what a device's thread does.
template <class T, class Combine, Index most>
struct CombineElement {
  T const* parts[most];
  Index part_count;
  T* targets[most];
  Index target_count;
  Combine combine;

  KOKKOS_FUNCTION void operator()(Index i) const {
    auto const sum = Impl::narrowed<T>(Impl::sum_of_element<device_rows>(parts, part_count, i, combine));
    for (Index target = 0; target < target_count; ++target) Impl::store(targets[target][i], sum);
  }
};

/// The same of a few parts that begin where a pack can, a pack at a time: their sums stay in registers.
template <class T, class Combine, int part_count, Index most_of_targets>
struct CombinePack {
  static constexpr int size = Impl::packet_of<T>;
  T const* parts[part_count];
  T* targets[most_of_targets];
  Index target_count;
  Index n;
  Combine combine;

  KOKKOS_FUNCTION void operator()(Index i) const {
    using Pack = Impl::Pack<T>;
    if ((i + 1) * size > n) return combine_rest(i * size);
    Pack read[part_count], sum;
    for (int part = 0; part < part_count; ++part) read[part] = reinterpret_cast<Pack const*>(parts[part])[i];
    for (int k = 0; k < size; ++k)
      Impl::store(sum[k], Impl::narrowed<T>(Impl::tree_of<0, part_count>(read, k, combine)));
    for (Index target = 0; target < target_count; ++target) reinterpret_cast<Pack*>(targets[target])[i] = sum;
  }
  KOKKOS_FUNCTION void combine_rest(Index begin) const {
    for (Index i = begin; i < n; ++i) {
      auto const sum = Impl::narrowed<T>(Impl::tree_of<0, part_count>(parts, i, combine));
      for (Index target = 0; target < target_count; ++target) Impl::store(targets[target][i], sum);
    }
  }
};

template <class T>
struct CopyElement {
  T const* from;
  T* to;
  KOKKOS_FUNCTION void operator()(Index i) const { to[i] = from[i]; }
};

template <class T>
struct CopyPack {
  T const* from;
  T* to;
  Index n;
  KOKKOS_FUNCTION void operator()(Index i) const {
    using Pack = Impl::Pack<T>;
    constexpr int size = Impl::packet_of<T>;
    Index const begin = i * size;
    if (begin + size <= n)
      reinterpret_cast<Pack*>(to)[i] = reinterpret_cast<Pack const*>(from)[i];
    else
      for (Index k = begin; k < n; ++k) to[k] = from[k];
  }
};

template <class T>
bool begins_a_pack(T const* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % sizeof(Impl::Pack<T>) == 0;
}

template <class Body>
void run_blocks(Body const& body) {
  Index const blocks = Impl::divide_up(body.n, body.block);
  for (Index i = 0; i < blocks; ++i) body(i);
}

/// body(i) for all blocks of n elements, whose operands' addresses lie in host memory.
template <class Body>
void launch_blocks(ExecutionSpace const& exec, Kernel const& kernel, Body const& body) {
  Index const blocks = Impl::divide_up(body.n, body.block);
  if (blocks > 1 && kernel.bytes > largest_inline_bytes) return launch_for(kernel, Blocks(exec, 0, blocks), body);
  launch_inline(kernel, exec, [&] { run_blocks(body); });
}

template <class Body>
void launch_elements(ExecutionSpace const& exec, Kernel const& kernel, Index n, Body const& body) {
  if (n > 0) launch_for(kernel, Impl::for_large_body(Blocks(exec, 0, n)), body);
}

template <class T>
Kernel combine_kernel(char const* label, Impl::Operands<T> const& operands, Index n) {
  auto const parts = static_cast<std::uint64_t>(operands.part_count);
  auto const targets = static_cast<std::uint64_t>(operands.target_count);
  auto const size = static_cast<std::uint64_t>(n);
  return {label, Phase::communication, (parts - 1) * size, (parts + targets) * size * sizeof(T)};
}

template <class T, class Combine>
void launch_combine_elements(ExecutionSpace const& exec, char const* label, Impl::Operands<T> const& operands, Index n,
                             Combine combine) {
  TRAINSTONE_REQUIRE(operands.part_count <= most_device_parts && operands.target_count <= most_device_parts,
                     "{} of {} parts into {} targets: a device takes up to {} of each", label, operands.part_count,
                     operands.target_count, most_device_parts);
  auto const launch = [&]<class Body>(Body body) {
    std::copy_n(operands.parts, operands.part_count, body.parts);
    std::copy_n(operands.targets, operands.target_count, body.targets);
    launch_elements(exec, combine_kernel(label, operands, n), n, body);
  };
  constexpr Index few = 16;
  Index const parts = operands.part_count, targets = operands.target_count;
  bool const in_packs = targets <= few && std::all_of(operands.parts, operands.parts + parts, begins_a_pack<T>) &&
                        std::all_of(operands.targets, operands.targets + targets, begins_a_pack<T>);
  auto const launch_packs = [&]<int part_count>() {
    CombinePack<T, Combine, part_count, few> body{{}, {}, targets, n, combine};
    std::copy_n(operands.parts, parts, body.parts);
    std::copy_n(operands.targets, targets, body.targets);
    launch_elements(exec, combine_kernel(label, operands, n), Impl::divide_up(n, Impl::packet_of<T>), body);
  };
  if (in_packs && parts == 2) return launch_packs.template operator()<2>();
  if (in_packs && parts == 4) return launch_packs.template operator()<4>();
  if (in_packs && parts == 8) return launch_packs.template operator()<8>();
  if (parts <= few && targets <= few)
    launch(CombineElement<T, Combine, few>{{}, parts, {}, targets, combine});
  else
    launch(CombineElement<T, Combine, most_device_parts>{{}, parts, {}, targets, combine});
}

template <class T, class Combine>
void launch_combine(ExecutionSpace const& exec, char const* label, Impl::Operands<T> const& operands, Index n,
                    Worker worker, Combine combine) {
  CombineBlocks<T, Combine> const body{operands, combine, n, block_bytes / Index{sizeof(T)}};
  if (worker == Worker::calling_thread) {
    run_blocks(body);
  } else if constexpr (launches_wait) {
    launch_blocks(exec, combine_kernel(label, operands, n), body);
  } else {
    launch_combine_elements(exec, label, operands, n, combine);
  }
}

/// body(combine) with what the operation does.
template <class Body>
void with_combine(Operation operation, Body const& body) {
  switch (operation) {
  case Operation::sum: return body(Impl::Sum{});
  case Operation::max: return body(Impl::Max{});
  case Operation::min: return body(Impl::Min{});
  }
}

void require_equal_extents(std::size_t from, std::size_t to) {
  TRAINSTONE_REQUIRE(from == to, "source has {} elements, target {}", from, to);
}

} // namespace

template <class T>
void reduce(ExecutionSpace const& exec, Operation operation, Vector<T const> from, Vector<T> to, Worker worker) {
  require_equal_extents(from.extent(0), to.extent(0));
  std::array<T const*, 2> const parts{to.data(), from.data()};
  T* const target = to.data();
  with_combine(operation, [&](auto combine) {
    launch_combine<T>(exec, "trainstone::comm::reduce", {parts.data(), 2, &target, 1}, static_cast<Index>(to.extent(0)),
                      worker, combine);
  });
}

template <class T>
void combine(ExecutionSpace const& exec, Operation operation, std::span<T const* const> parts, Index n,
             std::span<T* const> targets, Worker worker) {
  TRAINSTONE_REQUIRE(!parts.empty() && !targets.empty() && n >= 0, "{} parts of {} elements combined into {} targets",
                     parts.size(), n, targets.size());
  TRAINSTONE_REQUIRE(std::ssize(parts) <= Impl::most_parts, "{} parts, {} can be combined", parts.size(),
                     Impl::most_parts);
  with_combine(operation, [&](auto combine) {
    launch_combine<T>(exec, "trainstone::comm::combine",
                      {parts.data(), std::ssize(parts), targets.data(), std::ssize(targets)}, n, worker, combine);
  });
}

template <class T>
void Impl::combine_by_element(ExecutionSpace const& exec, Operation operation, std::span<T const* const> parts, Index n,
                              std::span<T* const> targets) {
  with_combine(operation, [&](auto combine) {
    launch_combine_elements<T>(exec, "trainstone::comm::combine",
                               {parts.data(), std::ssize(parts), targets.data(), std::ssize(targets)}, n, combine);
  });
}

namespace {

template <class T>
void launch_copy_elements(ExecutionSpace const& exec, Kernel const& kernel, Index n, T const* from, T* to) {
  if (begins_a_pack(from) && begins_a_pack(to))
    launch_elements(exec, kernel, Impl::divide_up(n, Impl::packet_of<T>), CopyPack<T>{from, to, n});
  else
    launch_elements(exec, kernel, n, CopyElement<T>{from, to});
}

/// One piece per thread: memcpy does better on long ones (64 MiB 1.15, 16 MiB 1.3 times faster than in 64 KiB).
template <class T>
void launch_copy(ExecutionSpace const& exec, char const* label, CopyBytes copy_bytes, Vector<T const> from,
                 Vector<T> to, Worker worker) {
  require_equal_extents(from.extent(0), to.extent(0));
  auto const n = static_cast<Index>(to.extent(0));
  Kernel const kernel{label, Phase::communication, 0, 2 * to.extent(0) * sizeof(T)};
  if (worker == Worker::calling_thread) {
    if (n > 0) CopyPieces<T>{copy_bytes, from.data(), to.data(), n, n}(0);
  } else if constexpr (launches_wait) {
    Index const piece = std::max(Index{1}, Impl::divide_up(n, exec.concurrency()));
    launch_blocks(exec, kernel, CopyPieces<T>{copy_bytes, from.data(), to.data(), n, piece});
  } else {
    launch_copy_elements(exec, kernel, n, from.data(), to.data());
  }
}

} // namespace

template <class T>
void copy(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to, Worker worker) {
  launch_copy(exec, "trainstone::comm::copy", plain_copy, from, to, worker);
}

template <class T>
void push(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to, Worker worker) {
  launch_copy(exec, "trainstone::comm::push", push_bytes, from, to, worker);
}

template <class T>
void Impl::copy_by_element(ExecutionSpace const& exec, T const* from, Index n, T* to) {
  launch_copy_elements(exec, {"trainstone::comm::copy", Phase::communication}, n, from, to);
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void reduce(ExecutionSpace const&, Operation, Vector<T const>, Vector<T>, Worker);                          \
  template void combine(ExecutionSpace const&, Operation, std::span<T const* const>, Index, std::span<T* const>,       \
                        Worker);                                                                                       \
  template void copy(ExecutionSpace const&, Vector<T const>, Vector<T>, Worker);                                       \
  template void push(ExecutionSpace const&, Vector<T const>, Vector<T>, Worker);                                       \
  template void Impl::combine_by_element(ExecutionSpace const&, Operation, std::span<T const* const>, Index,           \
                                         std::span<T* const>);                                                         \
  template void Impl::copy_by_element(ExecutionSpace const&, T const*, Index, T*)

TRAINSTONE_INSTANTIATE(float);
TRAINSTONE_INSTANTIATE(double);
TRAINSTONE_INSTANTIATE(std::int32_t);
TRAINSTONE_INSTANTIATE(std::int64_t);
TRAINSTONE_INSTANTIATE(bf16);
TRAINSTONE_INSTANTIATE(fp16);

#undef TRAINSTONE_INSTANTIATE

} // namespace trainstone
