#pragma once

// Which memory MPI gets, as a value, and what follows for a schedule: the longest message and the memory of message
// copies. Pure functions. Plans add up their results, and an Execution checks its caller against them.
// comm/execution/buffers.cpp owns the memory itself and the copying, and knows what this build can use.

#include "comm/schedule/counters.hpp"
#include "comm/schedule/schedule.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainstone {

enum class MessageBuffers {
  host,   ///< the memory itself, which is the host's
  staged, ///< copies of the messages in pinned memory of the host
  device, ///< the memory itself, which is a device's
};

inline constexpr std::array message_buffers{MessageBuffers::host, MessageBuffers::staged, MessageBuffers::device};

/// As decks and headers write them: the names of the enumerators.
std::string_view to_string(MessageBuffers buffers);
/// Nothing for "auto". \throws InputError if there is no such name
std::optional<MessageBuffers> parse_message_buffers(std::string_view name);

/// The reason why this build cannot use the buffers `name` of a deck, with the legal values; empty if it can.
std::string buffers_refusal(std::string_view name);
/// The memory that MPI gets if a deck says `name`. auto: host memory if kernels work on it, else copies.
/// \throws InputError if it is refused
MessageBuffers resolve_buffers(std::string_view name);

/// The longest part of a copied message. While MPI sends one part, the next part is copied.
inline constexpr std::uint64_t staged_message_bytes = std::uint64_t{1} << 20;

/// Largest number of elements of a given size in one message. The same on all ranks.
Index longest_message(MessageBuffers buffers, std::size_t element_bytes);

/// Alignment of the copy of a message. It keeps the copy apart from copies that other cores or the device write
/// meanwhile.
inline constexpr std::uint64_t staging_alignment = 64;
/// Bytes that the copy of a message takes.
constexpr std::uint64_t staging_footprint(std::uint64_t message_bytes) {
  return (message_bytes + staging_alignment - 1) / staging_alignment * staging_alignment;
}

/// Pinned memory for the copies of all messages of the largest round. Rounds use it one after the other. 0 unless
/// staged. \param[in] longest  elements of a message, at most; never more than longest_message() above
std::uint64_t staging_bytes(MessageBuffers buffers, Schedule const& schedule, std::size_t element_bytes,
                            Index longest = longest_mpi_message);

} // namespace trainstone
