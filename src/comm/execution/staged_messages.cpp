#include "comm/execution/staged_messages.hpp"

#include "comm/schedule/message_buffers.hpp"
#include "core/error.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace trainstone::Impl {

std::byte* StagedMessages::add(std::vector<Piece> const& pieces) {
  std::uint64_t bytes = 0;
  for (Piece const& piece : pieces) bytes += piece.bytes;
  TRAINSTONE_REQUIRE(m_used + bytes <= m_staging.size(),
                     "a message of {} bytes has no room in {} bytes of staging, {} are used", bytes, m_staging.size(),
                     m_used);
  std::size_t const first = m_pieces.size();
  m_pieces.insert(m_pieces.end(), pieces.begin(), pieces.end());
  m_messages.push_back({first, m_pieces.size(), m_staging.data() + m_used});
  m_used += staging_footprint(bytes);
  return m_messages.back().place;
}

void StagedMessages::come_after(ExecutionSpace const& exec) const {
  order_after(exec, m_instances->out);
  order_after(exec, m_instances->in);
}

/// Piece after piece.
template <class Copy>
void StagedMessages::copy(Message const& message, Copy const& copy_piece) const {
  std::byte* place = message.place;
  for (std::size_t i = message.first_piece; i < message.end_of_pieces; ++i) {
    auto const& [memory, bytes] = m_pieces[i];
    if (bytes > 0) copy_piece(memory, std::span(place, bytes));
    place += bytes;
  }
}

void StagedMessages::copy_out(std::size_t message) {
  copy(m_messages[message], [this](std::byte const* memory, std::span<std::byte> staged) {
    copy_to_pinned(m_instances->out, memory, staged);
  });
  m_messages[message].copied.record(m_instances->out);
}

void StagedMessages::copy_in(std::size_t message) {
  copy(m_messages[message], [this](std::byte* memory, std::span<std::byte const> staged) {
    copy_from_pinned(m_instances->in, staged, memory);
  });
  m_messages[message].copied.record(m_instances->in);
}

void StagedMessages::finish() const noexcept {
  try {
    m_instances->out.fence("trainstone::comm::withdraw: copies of the staging memory");
    m_instances->in.fence("trainstone::comm::withdraw: copies to the caller's memory");
  } catch (std::exception const& error) {
    std::fprintf(stderr, "trainstone: copies of messages come to no end: %s\n", error.what());
    std::abort();
  }
}

} // namespace trainstone::Impl
