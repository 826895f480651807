#include "comm/counters.hpp"

#include "core/error.hpp"

namespace trainstone {

Traffic& Traffic::operator+=(Traffic const& other) {
  messages += other.messages;
  bytes += other.bytes;
  reduced += other.reduced;
  return *this;
}

Traffic operator+(Traffic a, Traffic const& b) { return a += b; }

Traffic operator*(std::uint64_t times, Traffic traffic) {
  return {times * traffic.messages, times * traffic.bytes, times * traffic.reduced};
}

std::string to_string(Traffic const& traffic) {
  return fmt::format("{} messages, {} bytes, {} elements reduced", traffic.messages, traffic.bytes, traffic.reduced);
}

Traffic CommCounters::total(Purpose purpose) const {
  Traffic sum;
  for (auto const& per_algorithm : m_traffic[static_cast<std::size_t>(purpose)]) {
    for (Traffic const& traffic : per_algorithm) sum += traffic;
  }
  return sum;
}

CommCounters& comm_counters() {
  static CommCounters instance;
  return instance;
}

Traffic predict_traffic(Schedule const& schedule, std::size_t element_bytes, Index longest_message) {
  TRAINSTONE_REQUIRE(longest_message >= 1, "a message cannot have at most {} elements", longest_message);
  Traffic traffic;
  for (Round const& round : schedule.rounds) {
    for (Move const& move : round) {
      auto const size = static_cast<std::uint64_t>(move.size());
      auto const longest = static_cast<std::uint64_t>(longest_message);
      if (move.action == Action::send) {
        traffic.messages += (size + longest - 1) / longest;
        traffic.bytes += size * element_bytes;
      } else if (move.action == Action::reduce) {
        traffic.reduced += size;
      }
    }
  }
  return traffic;
}

} // namespace trainstone
