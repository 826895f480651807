#pragma once

// Watches over the other ranks of a node: a rank that is killed would leave them waiting for ever, in shared memory and
// in MPI. Owns a page that they share, and a thread that looks about once a second. Promises: every end that says
// nothing is seen, because each rank holds a lock of the system on a byte of that page's file, which goes with the
// process. A rank that has ended its watch, in order or by an exception, is missed by nobody. Nothing is counted, and
// nothing waits for the thread. Ranks of other nodes are the launcher's business.
// Not by process numbers (pidfd): in containers with one rank each they name other processes.

#include "comm/communicator.hpp"

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

/// What a rank lets its neighbours know, in shared memory that it alone writes.
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

/// Takes the lock of this rank's place, until the file is closed. Where that is impossible nobody will look at it.
void come(Neighbourhood const& neighbourhood, RankProcess const& who);
/// Before the file is closed.
void say_goodbye(Neighbourhood const& neighbourhood);
/// This rank will end because that one has ended.
void follow(Neighbourhood const& neighbourhood, RankProcess const& cause);
/// Who has ended without a goodbye: the next rank that has not left, or whom another one follows. One look at a lock
/// per call: of two neighbouring ranks that live the first looks at the second, so together they look at all.
std::optional<RankProcess> find_ended(Neighbourhood const& neighbourhood);

} // namespace Impl

/// Lives in main() while ranks wait for each other.
class NeighbourWatch {
public:
  /// Collective over the communicator, whose ranks messages name: all of the program. Where ranks of a node can share
  /// nothing, and where a rank is alone on its node, nobody watches.
  /// \param[in] period  between two looks. A rank that is seen to have ended in two of them ends this process with exit
  ///            code 70 and a line that names it; one look would not give a launcher the time to end all ranks itself.
  explicit NeighbourWatch(Communicator const& communicator, std::chrono::milliseconds period = std::chrono::seconds(1));
  NeighbourWatch(NeighbourWatch const&) = delete;
  NeighbourWatch& operator=(NeighbourWatch const&) = delete;
  /// Says goodbye.
  ~NeighbourWatch();

private:
  struct State;
  std::unique_ptr<State> m_state; ///< null: nobody watches
};

} // namespace trainstone
