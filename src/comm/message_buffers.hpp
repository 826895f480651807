#pragma once

// What MPI is given of the memory that collectives work on, as a value, and what follows from it for a schedule: how
// long its messages may be and what memory the copies of them take. Pure functions, which plans add up and an Execution
// holds its caller to; the memory itself, which of them this build can have, and the copying are comm/buffers.cpp's.

#include "comm/counters.hpp"
#include "comm/schedule.hpp"

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

/// Why this build's MPI messages cannot be as a deck says by `name`, with the legal values; empty if they can.
std::string buffers_refusal(std::string_view name);
/// What MPI is given where a deck says `name`. auto: host memory itself where kernels work on it, else copies.
/// \throws InputError if it is refused
MessageBuffers resolve_buffers(std::string_view name);

/// Longer moves are cut where messages are copied: while MPI sends one part, the next one is copied.
inline constexpr std::uint64_t staged_message_bytes = std::uint64_t{1} << 20;

/// Elements of so many bytes in one message, at most; the same on all ranks.
Index longest_message(MessageBuffers buffers, std::size_t element_bytes);

/// Where the copy of a message begins: apart from those that other cores or the device write meanwhile.
inline constexpr std::uint64_t staging_alignment = 64;
/// What the copy of a message takes.
constexpr std::uint64_t staging_footprint(std::uint64_t message_bytes) {
  return (message_bytes + staging_alignment - 1) / staging_alignment * staging_alignment;
}

/// Pinned memory for the copies of all messages of a round, of the largest one: rounds use it one after the other. 0
/// unless staged. \param[in] longest  elements of a message, at most; never more than longest_message() above
std::uint64_t staging_bytes(MessageBuffers buffers, Schedule const& schedule, std::size_t element_bytes,
                            Index longest = longest_mpi_message);

} // namespace trainstone
