#pragma once

// Memory for kernels that is not the host's: an allocation per rank, which every neighbour on the node maps once. Owns
// this rank's allocation and its mappings of the others. Does not know when neighbours have done with theirs. For
// src/comm/execution/shared_segment.cpp alone.

#include "comm/execution/buffers.hpp"
#include "comm/execution/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trainstone::Impl {

class ExportedParts {
public:
  /// Collective over the communicator. `bytes` of this rank's part may differ between ranks. The parts are 0.
  /// \throws CollectiveError on all ranks, naming rank and reason, if one of them cannot allocate or map
  ExportedParts(MemoryExport const& calls, Communicator const& communicator, std::string const& label,
                std::uint64_t bytes);
  ExportedParts(ExportedParts const&) = delete;
  ExportedParts& operator=(ExportedParts const&) = delete;
  /// No neighbour may have this rank's part mapped, nor a kernel use one.
  ~ExportedParts();

  /// By the neighbour's place on the node.
  std::byte* part(std::size_t neighbour) const { return m_parts[neighbour]; }
  /// The neighbours' parts are no longer this process's.
  void unmap_neighbours() noexcept;

private:
  void map_neighbours(Communicator const& communicator, std::vector<MemoryExport::Handle> const& handles);

  MemoryExport const& m_calls;
  std::byte* m_own = nullptr;
  std::vector<std::byte*> m_parts;
};

} // namespace trainstone::Impl
