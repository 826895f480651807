#include "comm/schedule/counters.hpp"

#include "core/error.hpp"

namespace trainstone {

namespace {
thread_local CommCounters* counters_of_thread = nullptr;
}

Traffic& Traffic::operator+=(Traffic const& other) {
  messages += other.messages;
  bytes += other.bytes;
  reduced += other.reduced;
  inter_messages += other.inter_messages;
  inter_bytes += other.inter_bytes;
  shared_bytes += other.shared_bytes;
  return *this;
}

Traffic operator+(Traffic a, Traffic const& b) { return a += b; }

Traffic operator*(std::uint64_t times, Traffic traffic) {
  return {times * traffic.messages,       times * traffic.bytes,       times * traffic.reduced,
          times * traffic.inter_messages, times * traffic.inter_bytes, times * traffic.shared_bytes};
}

std::string to_string(Traffic const& traffic) {
  std::string text =
      fmt::format("{} messages, {} bytes, {} elements reduced", traffic.messages, traffic.bytes, traffic.reduced);
  if (traffic.inter_messages > 0) {
    text += fmt::format(", {} messages, {} bytes between nodes", traffic.inter_messages, traffic.inter_bytes);
  }
  if (traffic.shared_bytes > 0) text += fmt::format(", {} bytes in shared memory", traffic.shared_bytes);
  return text;
}

Traffic CommCounters::total(Purpose purpose) const {
  Traffic sum;
  for (auto const& per_algorithm : m_traffic[static_cast<std::size_t>(purpose)]) {
    for (Traffic const& traffic : per_algorithm) sum += traffic;
  }
  return sum;
}

CommCounters& CommCounters::operator+=(CommCounters const& other) {
  for (Purpose const purpose : purposes) {
    for (Collective const collective : collectives) {
      for (Algorithm const algorithm : algorithms)
        at(purpose, collective, algorithm) += other.at(purpose, collective, algorithm);
    }
  }
  return *this;
}

CommCounters& comm_counters() {
  static CommCounters instance;
  return counters_of_thread ? *counters_of_thread : instance;
}

ThreadCommCounters::ThreadCommCounters(CommCounters& counted) { counters_of_thread = &counted; }

ThreadCommCounters::~ThreadCommCounters() { counters_of_thread = nullptr; }

Traffic predict_traffic(Schedule const& schedule, Topology const& topology, std::size_t element_bytes,
                        Index longest_message) {
  TRAINSTONE_REQUIRE(longest_message >= 1, "a message cannot have at most {} elements", longest_message);
  Traffic traffic;
  for (Round const& round : schedule.rounds) {
    for (Move const& move : round) {
      auto const size = static_cast<std::uint64_t>(move.size());
      if (move.action == Action::send) {
        auto const longest = static_cast<std::uint64_t>(longest_message);
        std::uint64_t const messages = size == 0 ? 1 : (size + longest - 1) / longest; // a signal is a message, too
        bool const crosses = topology.link(schedule.rank, move.peer) == Link::inter;
        traffic.messages += messages;
        traffic.bytes += size * element_bytes;
        traffic.inter_messages += crosses ? messages : 0;
        traffic.inter_bytes += crosses ? size * element_bytes : 0;
      } else if (move.action == Action::reduce) {
        traffic.reduced += size;
      } else if (move.action == Action::combine) {
        traffic.reduced += size * static_cast<std::uint64_t>(combined_parts(move, schedule) - 1);
      }
      traffic.shared_bytes += shared_bytes(move, schedule, element_bytes);
    }
  }
  return traffic;
}

std::uint64_t shared_bytes(Move const& move, Schedule const& schedule, std::size_t element_bytes) {
  if (!move.is_shared()) return 0;
  Index const read = move.action == Action::combine ? combined_parts(move, schedule) : 1;
  Index const also_read = move.action == Action::reduce ? 1 : 0;
  Index const written = move.to.owner == every_neighbour ? std::ssize(schedule.neighbours) : 1;
  return static_cast<std::uint64_t>((read + also_read + written) * move.size()) * element_bytes;
}

} // namespace trainstone
