#pragma once

// The memory that collectives are measured in. Owns data and scratch, in memory that the node's ranks share or in this
// process's memory for kernels, and the pinned memory of staged messages. Promises: data and scratch are zero, and on
// hosts every page was touched first by the rank that uses it; all of it is entered in the ledger.

#include "comm/execution/buffers.hpp"
#include "comm/execution/communicator.hpp"
#include "comm/execution/shared_segment.hpp"
#include "core/memory.hpp"
#include "core/views.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace trainstone {

/// What is measured, as views: collectives are run in them one after the other.
struct MeasuredBuffers {
  Vector<std::byte> data;
  Vector<std::byte> scratch;
  std::span<std::byte> staging = {}; ///< pinned; empty unless messages are staged
  SharedSegment* segment = nullptr;  ///< where data and scratch lie, if problems have shared memory
};

/// How much of it.
struct MeasuredBytes {
  std::uint64_t data = 0;
  std::uint64_t scratch = 0;
  std::uint64_t staging = 0;

  /// As much as either needs.
  void include(MeasuredBytes const& other);
};

class MeasuredMemory {
public:
  /// Collective over the communicator. \param[in] exec  data and scratch are zeroed here, complete on return
  /// \param[in] ledger  must outlive this    \param[in] label without the prefix, e.g. "commbench"
  /// \param[in] shared  in memory that the ranks of a node share, if kernels reach it
  MeasuredMemory(ExecutionSpace const& exec, Communicator const& communicator, MemoryLedger& ledger,
                 std::string const& label, MeasuredBytes const& bytes, bool shared);
  MeasuredMemory(MeasuredMemory const&) = delete;
  MeasuredMemory& operator=(MeasuredMemory const&) = delete;

  /// Data and scratch, each on 64 bytes of its own.
  MeasuredBuffers const& buffers() const { return m_buffers; }
  /// Both together, for who cuts them otherwise.
  Vector<std::byte> bytes() const;

private:
  std::optional<SharedSegment> m_segment;
  Allocation m_own; ///< empty where there is a segment
  PinnedMemory m_pinned;
  MeasuredBuffers m_buffers;
};

} // namespace trainstone
