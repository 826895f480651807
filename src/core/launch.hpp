#pragma once

// The one way to start a kernel. Owns the label, the counting (launches, FLOPs, bytes, seconds) and the places around a
// launch where others are called (core/hook.hpp).
// Promises: the kernel runs on the given instance under the given label; nothing is fenced but where the docstring
// says so. Seconds are taken where the host executes the kernel itself; on a device they are the launch's alone.

#include "core/counters.hpp"
#include "core/error.hpp"
#include "core/hook.hpp"
#include "core/region.hpp"
#include "core/views.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace trainstone {

/// Kernels run on the host and have ended when the launch returns.
inline constexpr bool launches_wait = std::is_same_v<ExecutionSpace, Kokkos::DefaultHostExecutionSpace>;
static_assert(launches_wait == host_reaches_memory,
              "the host must not reach a device's memory: Kokkos without CUDA_UVM and without unified memory");

/// What a kernel declares when it starts. The label is "trainstone::area::step", vendor calls end in "[vendor]".
struct Kernel {
  char const* label;
  Phase phase = Phase::other;
  std::uint64_t flops = 0;
  std::uint64_t bytes = 0;
};

/// Called before every launch with the kernel's label; tests delay or record here.
using DelayPoint = Hook<void(char const* label)>;
DelayPoint& delay_point();
/// Calls it, if there is something to call: also at moments that are no launch.
void reach_delay_point(char const* label);

/// Called after every kernel with its label and the seconds that it took, on the clock of its phase: what it spends is
/// taken for the kernel's. Devices then wait for every kernel. For injected faults.
using KernelEnd = Hook<void(char const* label, double seconds)>;
KernelEnd& kernel_end();

/// Sees label and instance of every launch before it starts, because Kokkos Tools give all instances of a host back end
/// one number. For tests.
using LaunchObserver = Hook<void(char const* label, ExecutionSpace const& exec)>;
LaunchObserver& launch_observer();

/// Called after every launch_for, launch_reduce and launch_external: what must go on while kernels run does so here.
/// Not called for the kernels that it starts itself, nor for those that are part of something longer that is timed as a
/// whole, such as a collective. Each thread has a place of its own.
using BetweenLaunches = Hook<void()>;
BetweenLaunches& between_launches();

/// Adds the time of its own life to a phase. Used by launch and by the executor of collectives. Of nested ones the
/// outermost counts: the kernels of a collective are part of its time, and reading the clock once more would cost more
/// than adding up few numbers.
class PhaseTimer {
public:
  explicit PhaseTimer(Phase phase) : m_phase(phase) {
    if (depth()++ == 0) m_start = std::chrono::steady_clock::now();
  }
  PhaseTimer(PhaseTimer const&) = delete;
  PhaseTimer& operator=(PhaseTimer const&) = delete;
  /// Whether this thread is inside of one.
  static bool is_running() { return depth() > 0; }
  ~PhaseTimer() {
    if (--depth() > 0) return;
    counters().seconds[m_phase] += std::chrono::duration<double>(std::chrono::steady_clock::now() - m_start).count();
  }

private:
  static int& depth() {
    thread_local int timers = 0;
    return timers;
  }

  Phase m_phase;
  std::chrono::steady_clock::time_point m_start;
};

namespace Impl {
void count_launch(Kernel const& kernel);
void count_launch(Kernel const& kernel, ExecutionSpace const& exec);
void call_between_launches();
/// Whether somebody wants to know what a kernel of this thread takes.
bool kernels_are_timed();
/// Waits for the kernel, tells whoever wants to know what it took since `start`, and enters in the thread's table what
/// has passed then.
void end_kernel(Kernel const& kernel, ExecutionSpace const& exec, std::chrono::steady_clock::time_point start);

/// Starts a kernel, on the clock of its phase.
template <class Start>
void start_kernel(Kernel const& kernel, ExecutionSpace const& exec, Start const& start) {
  PhaseTimer const timer(kernel.phase);
  if (!kernels_are_timed()) return start();
  auto const before = std::chrono::steady_clock::now();
  start();
  end_kernel(kernel, exec, before);
}

/// What Kokkos Tools are told of a kernel that Kokkos does not start, while it runs.
class ShownKernel {
public:
  ShownKernel(char const* label, ExecutionSpace const& exec) : m_shown(Kokkos::Tools::profileLibraryLoaded()) {
    if (m_shown) Kokkos::Tools::beginParallelFor(label, Kokkos::Tools::Experimental::device_id(exec), &m_id);
  }
  ShownKernel(ShownKernel const&) = delete;
  ShownKernel& operator=(ShownKernel const&) = delete;
  ~ShownKernel() {
    if (m_shown) Kokkos::Tools::endParallelFor(m_id);
  }

private:
  bool m_shown;
  std::uint64_t m_id = 0;
};
} // namespace Impl

/// parallel_for over `policy`, which carries the instance. Returns without fencing.
template <class Policy, class Body>
void launch_for(Kernel const& kernel, Policy const& policy, Body const& body) {
  Impl::count_launch(kernel, policy.space());
  Impl::start_kernel(kernel, policy.space(), [&] { Kokkos::parallel_for(kernel.label, policy, body); });
  Impl::call_between_launches();
}

/// Waits for all kernels of the instance. Where launches wait they have ended: there a fence of Kokkos would only take
/// locks (60 ns with Kokkos 4.5 Serial, as long as a line of memory takes to the other core).
inline void wait_for_kernels(ExecutionSpace const& exec, std::string const& label) {
  if constexpr (!launches_wait) exec.fence(label);
}

/// A kernel of less than some microseconds, run by the calling thread, which parallel_for would keep longer than the
/// kernel does (90 ns with Kokkos 4.5 Serial, several microseconds where threads wait for work): counted, timed,
/// delayed and shown to Kokkos Tools as those of launch_for are. Only where launches wait.
template <class Body>
void launch_inline(Kernel const& kernel, ExecutionSpace const& exec, Body const& body) {
  TRAINSTONE_REQUIRE(launches_wait, "{} cannot run on the host: kernels run on {}", kernel.label,
                     ExecutionSpace::name());
  Impl::count_launch(kernel, exec);
  Impl::ShownKernel const shown(kernel.label, exec);
  Impl::start_kernel(kernel, exec, body);
}

/// parallel_reduce over `policy` into `result` (a View, or a Kokkos reducer over one: no fence; a host scalar makes
/// Kokkos wait for this kernel).
template <class Policy, class Body, class Result>
void launch_reduce(Kernel const& kernel, Policy const& policy, Body const& body, Result&& result) {
  Impl::count_launch(kernel, policy.space());
  Impl::start_kernel(kernel, policy.space(),
                     [&] { Kokkos::parallel_reduce(kernel.label, policy, body, std::forward<Result>(result)); });
  Impl::call_between_launches();
}

/// A vendor library's call on an instance, wrapped so that it is labelled, counted and timed as a kernel is.
template <class Call>
void launch_external(Kernel const& kernel, ExecutionSpace const& exec, Call const& call) {
  Impl::count_launch(kernel);
  {
    ScopedRegion const region(kernel.label);
    Impl::start_kernel(kernel, exec, call);
  }
  Impl::call_between_launches();
}

} // namespace trainstone
