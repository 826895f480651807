#include "comm/schedule/message_buffers.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

std::string_view to_string(MessageBuffers buffers) {
  switch (buffers) {
  case MessageBuffers::host: return "host";
  case MessageBuffers::staged: return "staged";
  case MessageBuffers::device: return "device";
  }
  return "unknown";
}

std::optional<MessageBuffers> parse_message_buffers(std::string_view name) {
  if (name == "auto") return std::nullopt;
  auto const found = std::ranges::find(message_buffers, name, [](MessageBuffers each) { return to_string(each); });
  TRAINSTONE_REQUIRE_INPUT(found != message_buffers.end(),
                           "no buffers are called '{}'; there are auto, host, staged, "
                           "device",
                           name);
  return *found;
}

Index longest_message(MessageBuffers buffers, std::size_t element_bytes) {
  if (buffers != MessageBuffers::staged) return longest_mpi_message;
  return static_cast<Index>(staged_message_bytes / element_bytes);
}

std::uint64_t staging_bytes(MessageBuffers buffers, Schedule const& schedule, std::size_t element_bytes,
                            Index longest) {
  if (buffers != MessageBuffers::staged) return 0;
  longest = std::min(longest, longest_message(buffers, element_bytes));
  std::uint64_t most = 0;
  for (Round const& round : schedule.rounds) {
    std::uint64_t bytes = 0;
    for (Move const& move : round) {
      if (!move.is_message()) continue;
      auto const whole = static_cast<std::uint64_t>(move.size() / longest);
      auto const rest = static_cast<std::uint64_t>(move.size() % longest);
      bytes += whole * staging_footprint(static_cast<std::uint64_t>(longest) * element_bytes) +
               staging_footprint(rest * element_bytes);
    }
    most = std::max(most, bytes);
  }
  return most;
}

} // namespace trainstone
