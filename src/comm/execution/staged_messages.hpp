#pragma once

// The copies of messages that MPI gets in their place. Owns the place of each copy in the caller's staging memory, and
// the progress of copying. Promises: nothing waits but finish(); messages of one round never overlap. For
// src/comm/execution/message_rounds.cpp alone.

#include "comm/execution/buffers.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trainstone::Impl {

class StagedMessages {
public:
  /// Bytes of a message that lie one after the other in the kernels' memory.
  struct Piece {
    std::byte* memory;
    std::uint64_t bytes;
  };

  StagedMessages(std::shared_ptr<CopyInstances const> instances, std::span<std::byte> staging)
      : m_instances(std::move(instances)), m_staging(staging) {}

  /// The messages that are added next lie where those of the rounds before do: one round is under way at a time.
  void begin_round() { m_used = 0; }
  /// The next message. \return its place in the staging memory \throws Error if there is no room
  std::byte* add(std::vector<Piece> const& pieces);

  /// The copies that are made from now on come after all that is enqueued on `exec` now.
  void come_after(ExecutionSpace const& exec) const;
  /// Enqueues the copy of a message, by its number in the order in which they were added, to and from its place.
  void copy_out(std::size_t message);
  void copy_in(std::size_t message);
  /// Whether the last copy of a message has ended. Copies of one direction end in the order in which they were made.
  bool is_copied(std::size_t message) const { return m_messages[message].copied.is_done(); }
  /// Waits for all copies.
  void finish() const noexcept;

private:
  struct Message {
    std::size_t first_piece, end_of_pieces;
    std::byte* place;
    InstanceEvent copied = {};
  };

  template <class Copy>
  void copy(Message const& message, Copy const& copy_piece) const;

  std::shared_ptr<CopyInstances const> m_instances;
  std::span<std::byte> m_staging;
  std::vector<Piece> m_pieces; ///< of all messages
  std::vector<Message> m_messages;
  std::uint64_t m_used = 0; ///< of the staging memory, by the round
};

} // namespace trainstone::Impl
