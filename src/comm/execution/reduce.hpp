#pragma once

// The kernels of the executor: what a schedule's reduces, combines and copies do. bf16 and fp16 are added (and
// compared) in fp32 and rounded to nearest even once per call: once per hop of a ring, once in all for a combine.

#include "comm/schedule/element.hpp"
#include "core/views.hpp"

#include <cstdint>
#include <span>

namespace trainstone {

/// Kernels on no more bytes are run by the calling thread: about what it gets done while threads are woken up.
inline constexpr std::uint64_t largest_inline_bytes = 32768;

/// Who works on the operands.
enum class Worker {
  kernels,        ///< on the given instance, in the memory that kernels work on
  calling_thread, ///< in memory of the host, whatever kernels work on; no kernel, and complete on return
};

/// A combine on a device has its operands' addresses in the kernel's arguments: so many parts, and as many targets.
inline constexpr Index most_device_parts = 128;

/// to = to + from (or the larger, the smaller of the two), element by element.
/// \param[in]     exec work is enqueued here; returns without fencing
/// \param[in]     from (n)    \param[in,out] to (n), must not overlap from
/// Integer sums wrap around. A NaN on either side of max or min stays a NaN; +0 is larger than -0, in either order.
/// Work: n FLOP; 3 n sizeof(T) bytes.
template <class T>
void reduce(ExecutionSpace const& exec, Operation operation, Vector<T const> from, Vector<T> to,
            Worker worker = Worker::kernels);

/// All targets = parts[0] + parts[1] + ..., element by element, in the balanced binary tree over the parts' numbers
/// (parts i and i+1 for even i first; what has no partner is carried to the next level), in fp32 for bf16 and fp16,
/// else in T.
/// \param[in]  exec work is enqueued here; returns without fencing
/// \param[in]  parts (P) of n elements each, 1 <= P <= 65536; on devices P <= most_device_parts
/// \param[out] targets (Q) of n elements each, Q >= 1; a target may be one of the parts, and must not overlap them
///             otherwise; on devices Q <= most_device_parts
/// Work: (P-1) n FLOP; (P+Q) n sizeof(T) bytes.
template <class T>
void combine(ExecutionSpace const& exec, Operation operation, std::span<T const* const> parts, Index n,
             std::span<T* const> targets, Worker worker = Worker::kernels);

/// to = from. \param[in] exec work is enqueued here; returns without fencing    Work: 0 FLOP; 2 n sizeof(T) bytes.
template <class T>
void copy(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to, Worker worker = Worker::kernels);

/// The same, where `to` lies in a neighbour's memory and the neighbour reads it next (core/push_bytes.hpp). On devices
/// no different from copy().
template <class T>
void push(ExecutionSpace const& exec, Vector<T const> from, Vector<T> to, Worker worker = Worker::kernels);

namespace Impl {
/// How devices combine and copy: a thread per element, or per 16 bytes. Elsewhere for tests: the bits are the same.
template <class T>
void combine_by_element(ExecutionSpace const& exec, Operation operation, std::span<T const* const> parts, Index n,
                        std::span<T* const> targets);
template <class T>
void copy_by_element(ExecutionSpace const& exec, T const* from, Index n, T* to);
} // namespace Impl

} // namespace trainstone
