#pragma once

// Memory between devices, other processes and MPI. Owns pinned memory, copies to and from it, the order of work on
// different instances, and the calls by which processes map each other's device memory: everything that src/comm needs
// from a device beside kernels. Only this file of src/comm knows a kind of device. If kernels run on the host, pinned
// memory is host memory, copies have ended when they return, nothing needs an order, and processes share pages.

#include "comm/schedule/message_buffers.hpp"
#include "core/hook.hpp"
#include "core/memory.hpp"
#include "core/views.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trainstone {

/// The device that kernels run on.
struct Device {
  std::string id;                 ///< the same text on all ranks that use it; empty: none, kernels run on the host
  std::string name;               ///< what its maker calls it: "NVIDIA H100 80GB HBM3"
  std::uint64_t memory_bytes = 0; ///< of all that use it together
};
/// The device of this process. Kokkos must be initialised.
Device current_device();

/// Pinned memory, entered in a ledger for as long as it lives, and cut into parts. The ledger must outlive it.
class PinnedMemory {
public:
  PinnedMemory() = default;
  /// `label` without the prefix, e.g. "staging".
  PinnedMemory(MemoryLedger& ledger, std::string const& label, std::uint64_t bytes,
               MemoryCategory category = MemoryCategory::buffers);
  PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedMemory();

  /// The next `bytes` bytes, uninitialised; they take memory_footprint(bytes). \throws Error when all is taken
  std::span<std::byte> take(std::uint64_t bytes);
  std::uint64_t used() const { return m_used; }
  std::uint64_t capacity() const { return m_memory.extent(0); }

private:
  void swap(PinnedMemory& other) noexcept;

  MemoryLedger* m_ledger = nullptr;
  MemoryCategory m_category{};
  Kokkos::View<std::byte*, PinnedSpace> m_memory;
  std::uint64_t m_used = 0;
};

/// The instances for copies of messages, so that both directions and the kernels overlap. If launches wait, these are
/// the kernels' own instance.
struct CopyInstances {
  explicit CopyInstances(ExecutionSpace const& exec);

  ExecutionSpace out; ///< to the host
  ExecutionSpace in;  ///< from the host
};

/// An instance for the kernels of collectives, beside the caller's instance. If launches wait, it is the caller's own.
ExecutionSpace communication_instance(ExecutionSpace const& exec);

/// pinned = from, and to = pinned. \param[in] exec  the copy is enqueued here; returns without waiting
void copy_to_pinned(ExecutionSpace const& exec, std::byte const* from, std::span<std::byte> pinned);
void copy_from_pinned(ExecutionSpace const& exec, std::span<std::byte const> pinned, std::byte* to);

/// Work that is enqueued on `then` from now on begins when the work on `first` so far has ended. Does not wait.
void order_after(ExecutionSpace const& first, ExecutionSpace const& then);

/// A point in the work of an instance. Copies of an event stand for the same point, also when it is recorded anew.
class InstanceEvent {
public:
  InstanceEvent() = default;
  explicit InstanceEvent(ExecutionSpace const& exec) { record(exec); }
  /// All that is enqueued on exec so far.
  void record(ExecutionSpace const& exec);
  /// Whether it has ended. Does not wait.
  bool is_done() const;

private:
  std::shared_ptr<void> m_event; ///< the device's; null where launches wait
};

/// The calls by which processes of a node get at each other's memory for kernels, where this is not the host's pages.
/// Those that may fail throw Error with the call and its code.
struct MemoryExport {
  /// Names an allocation in other processes.
  using Handle = std::array<std::byte, 64>;

  std::uint64_t granularity;                   ///< an allocation is a multiple of so many bytes
  std::byte* (*allocate)(std::uint64_t bytes); ///< all 0, complete on return; aligned to 256 bytes
  Handle (*handle)(std::byte* allocated);
  std::byte* (*map)(Handle const& handle); ///< an allocation of another process, for kernels of this one
  void (*unmap)(std::byte* mapped) noexcept;
  void (*free)(std::byte* allocated) noexcept; ///< what no process has mapped any longer
};
/// Null where kernels work on the host's pages, which node_memory.hpp shares.
MemoryExport const* memory_export();
/// With this function, tests make a host look like a device whose memory is exported.
using PlayedExport = Hook<MemoryExport const*()>;
PlayedExport& played_export();

/// While this function returns true, no event is done. With it, tests make a host look like a device with work under
/// way.
using HeldEvents = Hook<bool()>;
HeldEvents& held_events();

} // namespace trainstone
