#pragma once

// Watches over the other ranks of a node: a rank that is killed would leave them waiting for ever, in shared memory and
// in MPI. Owns a page that they share, and a thread that looks about once a second. Promises: the thread sees every
// rank that ends without a goodbye, because each rank holds a lock of the system on a byte of that page's file, and the
// lock goes with the process. A rank that has ended its watch, in order or by an exception, is not reported. Nothing is
// counted, and nothing waits for the thread. The launcher watches the ranks of other nodes. Not by process numbers
// (pidfd): in containers with one rank each they name other processes.

#include "comm/execution/communicator.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace trainstone {

namespace Impl {

/// A rank as the message about its end names it.
struct RankProcess {
  Rank rank = 0;
  std::int32_t process = 0;
  bool operator==(RankProcess const&) const = default;
};

/// The state that a rank shows to its neighbours, in shared memory that it alone writes.
struct Presence {
  enum class State : std::int32_t {
    unknown, ///< nobody looks at it: not come yet, or the system knows no such locks
    here,    ///< it holds the lock of its place
    left,    ///< it has said goodbye
    follows  ///< it ends because another one has ended
  };
  std::atomic<State> state = State::unknown;
  RankProcess who;   ///< written before `here`
  RankProcess cause; ///< written before `follows`
};
static_assert(std::atomic<Presence::State>::is_always_lock_free);

/// The ranks of a node by place, as one of them sees them.
struct Neighbourhood {
  int file = -1; ///< whose byte at a rank's place is locked; opened by this rank itself
  std::span<Presence> presences;
  std::size_t me = 0;
};

/// Takes the lock of this rank's place, until the file is closed. If that is impossible, nobody watches this rank.
void come(Neighbourhood const& neighbourhood, RankProcess const& who);
/// Says goodbye. Call this before the file is closed.
void say_goodbye(Neighbourhood const& neighbourhood);
/// Says that this rank will end because the given rank has ended.
void follow(Neighbourhood const& neighbourhood, RankProcess const& cause);
/// The rank that has ended without a goodbye, if there is one: the next rank that has not left, or the rank that
/// another rank follows. A call checks one lock. Each living rank checks the next one, so together they check all
/// ranks.
std::optional<RankProcess> find_ended(Neighbourhood const& neighbourhood);

} // namespace Impl

/// Lives in main() while ranks wait for each other.
class NeighbourWatch {
public:
  /// A killed rank is missed within seconds, and looking takes no time that anybody measures.
  static constexpr std::chrono::milliseconds usual_period = std::chrono::seconds(1);

  /// Collective over the communicator, which must have all ranks of the program: messages use its rank numbers. If the
  /// ranks of a node cannot share memory, or if a rank is alone on its node, nobody watches.
  /// \param[in] period  time between two checks. If two checks find that a rank has ended, this process prints a line
  ///            that names the rank and ends with exit code 70. After one check, a launcher would not have had the time
  ///            to end all ranks itself.
  explicit NeighbourWatch(Communicator const& communicator, std::chrono::milliseconds period = usual_period);
  NeighbourWatch(NeighbourWatch const&) = delete;
  NeighbourWatch& operator=(NeighbourWatch const&) = delete;
  /// Says goodbye.
  ~NeighbourWatch();

private:
  struct State;
  std::unique_ptr<State> m_state; ///< null: nobody watches
};

} // namespace trainstone
