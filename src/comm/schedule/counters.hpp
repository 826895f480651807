#pragma once

// Counters of communication: messages and bytes sent, elements reduced, per collective, algorithm and link class.
// Incremented only where the executor posts a send or starts a reduction, from the actual arguments. Process-wide, as
// the kernels' counters are; callers subtract or reset. Also owns the prediction that is compared with them by ==.

#include "comm/schedule/schedule.hpp"
#include "comm/schedule/topology.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace trainstone {

/// What one rank sent and reduced.
struct Traffic {
  std::uint64_t messages = 0;       ///< sent
  std::uint64_t bytes = 0;          ///< sent
  std::uint64_t reduced = 0;        ///< elements added (or compared)
  std::uint64_t inter_messages = 0; ///< of messages: those to another node
  std::uint64_t inter_bytes = 0;    ///< of bytes: those to another node
  std::uint64_t shared_bytes = 0;   ///< read and written by moves that touch a neighbour's memory; never sent bytes

  Traffic& operator+=(Traffic const& other);
  bool operator==(Traffic const&) const = default;
};

Traffic operator+(Traffic a, Traffic const& b);
Traffic operator*(std::uint64_t times, Traffic traffic);
/// "6 messages, 48 bytes, 3 elements reduced", and what else is not zero.
std::string to_string(Traffic const& traffic);

/// The purpose of a collective: the training proper, small agreements (loss, norm, flags), or the state at the start of
/// the training.
enum class Purpose { training, control, start };

inline constexpr std::array purposes{Purpose::training, Purpose::control, Purpose::start};

/// The most elements in one MPI message; a longer move travels as several messages.
inline constexpr Index longest_mpi_message = std::numeric_limits<int>::max();

class CommCounters {
public:
  Traffic& at(Purpose purpose, Collective collective, Algorithm algorithm) {
    return m_traffic[static_cast<std::size_t>(purpose)][static_cast<std::size_t>(collective)]
                    [static_cast<std::size_t>(algorithm)];
  }
  Traffic const& at(Purpose purpose, Collective collective, Algorithm algorithm) const {
    return m_traffic[static_cast<std::size_t>(purpose)][static_cast<std::size_t>(collective)]
                    [static_cast<std::size_t>(algorithm)];
  }
  /// Sum over collectives and algorithms.
  Traffic total(Purpose purpose) const;
  CommCounters& operator+=(CommCounters const& other);
  bool operator==(CommCounters const&) const = default;

private:
  std::array<std::array<std::array<Traffic, algorithms.size()>, collectives.size()>, purposes.size()> m_traffic{};
};

/// The counters of this process (on a thread with ThreadCommCounters: that thread's); reset with comm_counters() = {}.
CommCounters& comm_counters();

/// While it lives, what its thread sends and reduces is counted in `counted`.
class ThreadCommCounters {
public:
  explicit ThreadCommCounters(CommCounters& counted);
  ThreadCommCounters(ThreadCommCounters const&) = delete;
  ThreadCommCounters& operator=(ThreadCommCounters const&) = delete;
  ~ThreadCommCounters();
};

/// What an execution of this schedule will count. Moves longer than `longest_message` elements are cut.
Traffic predict_traffic(Schedule const& schedule, Topology const& topology, std::size_t element_bytes,
                        Index longest_message = longest_mpi_message);

/// Bytes that a combine or copy reads and writes, if it touches a neighbour's memory; else 0.
std::uint64_t shared_bytes(Move const& move, Schedule const& schedule, std::size_t element_bytes);

} // namespace trainstone
