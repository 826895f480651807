#include "comm/execution/neighbour_watch.hpp"

#include "comm/execution/control.hpp"
#include "comm/execution/node_memory.hpp"
#include "core/error.hpp"
#include "core/thread_without_signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

namespace trainstone {

namespace Impl {

namespace {

struct flock byte_of(std::size_t place) {
  struct flock byte = {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = static_cast<off_t>(place);
  byte.l_len = 1;
  return byte;
}

/// Also where the system does not tell: nobody ends for that.
bool is_held(int file, std::size_t place) {
  struct flock found = byte_of(place);
  return fcntl(file, F_OFD_GETLK, &found) != 0 || found.l_type != F_UNLCK;
}

} // namespace

void come(Neighbourhood const& neighbourhood, RankProcess const& who) {
  Presence& presence = *std::construct_at(&neighbourhood.presences[neighbourhood.me]);
  presence.who = who;
  struct flock mine = byte_of(neighbourhood.me);
  if (fcntl(neighbourhood.file, F_OFD_SETLK, &mine) != 0) return;
  presence.state.store(Presence::State::here, std::memory_order_release);
}

void say_goodbye(Neighbourhood const& neighbourhood) {
  neighbourhood.presences[neighbourhood.me].state.store(Presence::State::left, std::memory_order_release);
}

void follow(Neighbourhood const& neighbourhood, RankProcess const& cause) {
  Presence& presence = neighbourhood.presences[neighbourhood.me];
  presence.cause = cause;
  presence.state.store(Presence::State::follows, std::memory_order_release);
}

std::optional<RankProcess> find_ended(Neighbourhood const& neighbourhood) {
  auto const state = [](Presence const& presence) { return presence.state.load(std::memory_order_acquire); };
  std::span<Presence const> const presences = neighbourhood.presences;
  auto const follower =
      std::ranges::find_if(presences, [&](auto const& one) { return state(one) == Presence::State::follows; });
  if (follower != presences.end()) return follower->cause;
  for (std::size_t i = 1; i < presences.size(); ++i) {
    std::size_t const place = (neighbourhood.me + i) % presences.size();
    Presence const& next = presences[place];
    if (state(next) != Presence::State::here) continue;
    if (is_held(neighbourhood.file, place)) return {};
    if (state(next) == Presence::State::here) return next.who; // a goodbye comes before the lock goes
  }
  return {};
}

namespace {

/// Without what the other threads may hold for ever: the main thread is left where it is.
[[noreturn]] void end_process(Neighbourhood const& neighbourhood, RankProcess const& ended) {
  follow(neighbourhood, ended);
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::array<char, 512> line{};
  auto const length =
      fmt::format_to_n(line.data(), line.size(),
                       "trainstone: rank {}: rank {} (process {} on {}) has ended without a word, and "
                       "this rank would wait for it for ever: it ends, too\n",
                       neighbourhood.presences[neighbourhood.me].who.rank, ended.rank, ended.process, host.data())
          .size;
  if (ftrylockfile(stdout) == 0) std::fflush(stdout); // what was printed before; not while the main thread prints
  [[maybe_unused]] auto const written = write(STDERR_FILENO, line.data(), std::min(length, line.size()));
  _exit(static_cast<int>(ExitCode::internal));
}

} // namespace

} // namespace Impl

struct NeighbourWatch::State {
  Impl::NodeMemory memory;
  Impl::Neighbourhood neighbourhood;
  std::mutex mutex;
  bool stop = false;
  std::condition_variable stopped;
  std::thread thread;

  explicit State(Impl::NodeMemory made) : memory(std::move(made)) {}

  void run(std::chrono::milliseconds period) {
    std::optional<Impl::RankProcess> before;
    std::unique_lock lock(mutex);
    while (!stopped.wait_for(lock, period, [this] { return stop; })) {
      std::optional<Impl::RankProcess> const ended = Impl::find_ended(neighbourhood);
      if (before && ended) Impl::end_process(neighbourhood, *ended);
      before = ended;
    }
  }
};

NeighbourWatch::NeighbourWatch(Communicator const& communicator, std::chrono::milliseconds period) {
  if (communicator.nodes().count == communicator.size()) return;
  std::vector<Rank> const& neighbours = communicator.topology().neighbours(communicator.rank());
  std::uint64_t const bytes = neighbours.size() * sizeof(Impl::Presence);
  try {
    m_state = std::make_unique<State>(Impl::share_memory(communicator, "the watch over neighbours", bytes));
    bool const is_first = communicator.rank() == neighbours.front();
    Impl::on_all_ranks(communicator, "have a page for the watch over neighbours", [&] {
      if (is_first) m_state->memory.populate(0, bytes);
    });
  } catch (CollectiveError const&) { // of all ranks; whoever needs shared memory will say so
    m_state.reset();
    return;
  }
  auto* const first = reinterpret_cast<Impl::Presence*>(m_state->memory.begin());
  auto const me = static_cast<std::size_t>(std::ranges::find(neighbours, communicator.rank()) - neighbours.begin());
  m_state->neighbourhood = {m_state->memory.file().descriptor(), std::span(first, neighbours.size()), me};
  Impl::come(m_state->neighbourhood, {communicator.rank(), getpid()});
  if (neighbours.size() > 1)
    m_state->thread = thread_without_signals([state = m_state.get(), period] { state->run(period); });
}

NeighbourWatch::~NeighbourWatch() {
  if (!m_state) return;
  {
    std::lock_guard const lock(m_state->mutex);
    m_state->stop = true;
  }
  m_state->stopped.notify_one();
  if (m_state->thread.joinable()) m_state->thread.join();
  Impl::say_goodbye(m_state->neighbourhood);
}

} // namespace trainstone
