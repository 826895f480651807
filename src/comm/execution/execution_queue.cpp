#include "comm/execution/execution_queue.hpp"

#include "comm/execution/mpi.hpp"
#include "core/counters.hpp"
#include "core/launch.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace trainstone {

struct ExecutionQueue::State {
  struct Turn {
    Execution* execution;
    InstanceEvent ready;
    Index number;
  };

  std::mutex mutex; // guards all below, and the executions themselves
  std::vector<Execution*> in_flight;
  std::vector<Turn> turns;             // that have not come
  Execution const* has_turn = nullptr; // one of those in flight
  std::exception_ptr error;            // of an execution
  bool stop = false;
  bool some_ended = false; // since counters were merged
  std::condition_variable changed;
  Counters counted;          // by the thread
  CommCounters communicated; // by the thread
  std::thread thread;        // the last member: the others exist when it starts

  /// In the order in which they were started.
  void advance_all() {
    try {
      for (Execution*& execution : in_flight)
        if (execution->progress()) execution = nullptr;
    } catch (...) {
      error = std::current_exception();
    }
    if (std::erase(in_flight, nullptr) > 0) some_ended = true;
    if (error) return;
    try {
      begin_turns();
    } catch (...) {
      error = std::current_exception();
    }
  }

  bool flies(Execution const& execution) const { return std::ranges::find(in_flight, &execution) != in_flight.end(); }
  bool has(Execution const& execution) const {
    return flies(execution) || std::ranges::find(turns, &execution, &Turn::execution) != turns.end();
  }
  bool is_empty() const { return in_flight.empty() && turns.empty(); }

  void begin_turns() {
    if (has_turn && !flies(*has_turn)) has_turn = nullptr;
    while (!has_turn) {
      auto next = turns.end();
      for (auto one = turns.begin(); one != turns.end(); ++one)
        if ((next == turns.end() || one->number < next->number) && one->ready.is_done()) next = one;
      if (next == turns.end()) return;
      Turn const turn = *next;
      turns.erase(next);
      turn.execution->start(turn.ready);
      if (!turn.execution->in_flight()) continue;
      in_flight.push_back(turn.execution);
      has_turn = turn.execution;
    }
  }

  void advance_for_caller() {
    rethrow();
    advance_all();
    share_counters();
    rethrow();
  }

  /// What the thread has counted, when a collective has ended: the counters are long.
  void share_counters() {
    if (std::exchange(some_ended, false) && thread.joinable()) merge_counters();
  }

  void run() {
    ThreadCounters const redirected(counted);
    ThreadCommCounters const redirected_communication(communicated);
    std::unique_lock lock(mutex);
    while (!stop) {
      changed.wait(lock, [this] { return stop || (!is_empty() && !error); });
      if (!stop) advance_all();
      lock.unlock();
      std::this_thread::yield(); // the caller may want the lock
      lock.lock();
    }
  }

  /// Seconds stay out: they passed beside the caller's.
  void merge_counters() {
    add_work(counted);
    comm_counters() += communicated;
    counted = {};
    communicated = {};
  }

  void rethrow() {
    if (error) std::rethrow_exception(error);
  }
};

ExecutionQueue::ExecutionQueue(Progress progress) : m_state(std::make_unique<State>()) {
  if (progress == Progress::by_caller) return;
  int provided = MPI_THREAD_SINGLE;
  TRAINSTONE_MPI_CHECK(MPI_Query_thread(&provided));
  TRAINSTONE_REQUIRE(provided >= MPI_THREAD_MULTIPLE, "MPI has thread level {}, a progress thread needs level {}",
                     provided, MPI_THREAD_MULTIPLE);
  m_state->thread = std::thread([state = m_state.get()] { state->run(); });
}

ExecutionQueue::~ExecutionQueue() {
  if (!m_state->thread.joinable()) return;
  {
    std::lock_guard const lock(m_state->mutex);
    m_state->stop = true;
  }
  m_state->changed.notify_one();
  m_state->thread.join();
  m_state->merge_counters();
}

void ExecutionQueue::start(Execution& execution, std::optional<InstanceEvent> const& ready) {
  std::lock_guard const lock(m_state->mutex);
  m_state->rethrow();
  execution.start(ready);
  if (!execution.in_flight()) return;
  m_state->in_flight.push_back(&execution);
  m_state->changed.notify_one();
}

void ExecutionQueue::start_in_turn(Execution& execution, InstanceEvent const& ready, Index number) {
  std::lock_guard const lock(m_state->mutex);
  m_state->rethrow();
  m_state->turns.push_back({&execution, ready, number});
  m_state->begin_turns();
  m_state->changed.notify_one();
}

bool ExecutionQueue::progress() {
  std::lock_guard const lock(m_state->mutex);
  m_state->advance_for_caller();
  return m_state->is_empty();
}

void ExecutionQueue::wait(Execution const& execution) {
  PhaseTimer const timer(Phase::communication); // the looks in vain, too
  Span const waiting(Lane::wait, [&] { return execution.name(); });
  Patience patience;
  while (true) {
    {
      std::lock_guard const lock(m_state->mutex);
      m_state->advance_for_caller();
      if (!m_state->has(execution)) return;
    }
    patience.look_again();
  }
}

void ExecutionQueue::wait_all() {
  PhaseTimer const timer(Phase::communication);
  Span const waiting(Lane::wait, [] { return std::string("all collectives"); });
  Patience patience;
  while (!progress()) patience.look_again();
}

std::size_t ExecutionQueue::in_flight() const {
  std::lock_guard const lock(m_state->mutex);
  m_state->share_counters();
  m_state->rethrow();
  return m_state->in_flight.size() + m_state->turns.size();
}

bool ExecutionQueue::has(Execution const& execution) const {
  std::lock_guard const lock(m_state->mutex);
  return m_state->has(execution);
}

} // namespace trainstone
