#pragma once

// Several collectives in flight. Owns the order in which they were started, and optionally a thread that keeps them
// going while the caller computes. Promises: whatever execution is waited for, all advance meanwhile, so ranks may wait
// in different orders; the counts of the thread are part of the process' counts as soon as wait() has returned. The
// seconds of the thread are not counted, because they pass beside the caller's. It starts kernels on the executions'
// instances: Kokkos runs those of an instance one after the other, whoever starts them (a lock per instance; seen in
// 4.5.1 Serial and 5.2.2 OpenMP, where the thread has OpenMP workers of its own).

#include "comm/execution/execution.hpp"

#include <cstddef>
#include <memory>
#include <optional>

namespace trainstone {

enum class Progress {
  by_caller, ///< inside start, progress and wait only
  by_thread, ///< by a thread of the queue, too; needs MpiThreads::multiple
};

/// All ranks start the same collectives in the same order, unless each has a tag of its own and
/// ExecutionOptions::any_order. For use by one thread.
class ExecutionQueue {
public:
  /// \throws Error if a thread is asked for and MPI was not initialised for several
  explicit ExecutionQueue(Progress progress = Progress::by_caller);
  ExecutionQueue(ExecutionQueue const&) = delete;
  ExecutionQueue& operator=(ExecutionQueue const&) = delete;
  /// All executions must have ended.
  ~ExecutionQueue();

  /// Starts an execution, which must outlive its time in the queue and is driven by the queue alone until its end.
  /// \param[in] ready  what it comes after, as Execution::start() says
  void start(Execution& execution, std::optional<InstanceEvent> const& ready = {});
  /// The same, but only one of all that are started so is in flight at a time. Of the others whose event has come, the
  /// one with the smallest number is next: it overtakes those that came before it.
  void start_in_turn(Execution& execution, InstanceEvent const& ready, Index number);
  /// Advances all executions as far as possible without waiting. Returns true when none is in flight.
  /// \throws what an execution threw, on the thread too
  bool progress();
  /// Waits for one execution of the queue; what was started before or after it may still be in flight.
  void wait(Execution const& execution);
  void wait_all();
  /// How many are in flight, or wait for their turn. Does not advance any. \throws what an execution threw on the
  /// thread
  std::size_t in_flight() const;
  /// Whether this one is. Does not advance any.
  bool has(Execution const& execution) const;

private:
  struct State;
  std::unique_ptr<State> m_state;
};

} // namespace trainstone
