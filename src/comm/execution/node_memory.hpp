#pragma once

// Pages that the processes of a node map together. Owns the mapping; knows nothing of what lies in it. For
// src/comm/execution/shared_segment.cpp, neighbour_watch.cpp and their tests.

#include "comm/execution/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace trainstone::Impl {

/// How processes get at each other's pages.
enum class Sharing {
  nameless, ///< a file without a name, which the others open through /proc; it ends with its last process
  named,    ///< a POSIX shared-memory object, unlinked as soon as all have opened it (a kill before that leaves it
            ///< behind): where /proc does not show the neighbours, as in containers with one process each
};

std::string_view to_string(Sharing sharing);

/// A file descriptor, closed at the end.
class File {
public:
  explicit File(int descriptor = -1) : m_descriptor(descriptor) {}
  File(File&& other) noexcept : m_descriptor(std::exchange(other.m_descriptor, -1)) {}
  File& operator=(File&& other) noexcept;
  ~File();
  int descriptor() const { return m_descriptor; }

private:
  int m_descriptor;
};

class NodeMemory {
public:
  /// Collective over the communicator; one mapping per node. `bytes` (> 0) are the same on all ranks of a node. The
  /// pages are zero, and not there yet.
  /// \throws CollectiveError on all ranks of the communicator, naming rank and reason, if one of them cannot map it
  NodeMemory(Communicator const& communicator, std::uint64_t bytes, Sharing sharing);

  /// Opened by this process itself, so that locks of the file are its own.
  File const& file() const { return m_file; }
  /// Aligned to a large page.
  std::byte* begin() const { return m_mapping.get(); }

  /// Makes the pages of a range (of whole pages), near the calling process.
  /// \throws Error if the system has no more, where a first touch would end in a bus error
  void populate(std::uint64_t offset, std::uint64_t bytes) const;

private:
  struct Unmap {
    std::uint64_t bytes;
    void operator()(std::byte* begin) const;
  };
  File m_file;
  std::unique_ptr<std::byte, Unmap> m_mapping;
};

/// Nameless, or with a name where that is impossible. \param[in] purpose  of messages, e.g. "trainstone::gradients"
/// \throws CollectiveError on all ranks of the communicator if both are impossible
NodeMemory share_memory(Communicator const& communicator, std::string_view purpose, std::uint64_t bytes);

/// The smallest unit of memory that the system hands out.
std::uint64_t page_bytes();

/// Runs `body` on every rank of the communicator; if it throws on one of them, all throw.
/// \throws CollectiveError "rank 2 cannot WHAT: ..." of the first such rank
void on_all_ranks(Communicator const& communicator, std::string_view what, std::function<void()> const& body);

} // namespace trainstone::Impl
