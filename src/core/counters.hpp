#pragma once

// Counters of what really ran: kernel launches, floating-point operations and seconds per phase. Process-wide, as
// Kokkos' own profiling is: every kernel is counted whoever starts it, none can be forgotten. Reset by the step loop.
// A thread beside the main one counts in an object of its own, whose owner adds it to the process' later.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace trainstone {

/// What a moment of the step is spent on.
enum class Phase { gemm, attention, optimizer, communication, other };

inline constexpr std::array<Phase, 5> phases{Phase::gemm, Phase::attention, Phase::optimizer, Phase::communication,
                                             Phase::other};

std::string_view to_string(Phase phase);

/// One slot per phase.
template <class T>
class PerPhase {
public:
  T& operator[](Phase phase) { return m_values[static_cast<std::size_t>(phase)]; }
  T const& operator[](Phase phase) const { return m_values[static_cast<std::size_t>(phase)]; }
  bool operator==(PerPhase const&) const = default;

private:
  std::array<T, phases.size()> m_values{};
};

struct Counters {
  PerPhase<std::uint64_t> launches;
  PerPhase<std::uint64_t> flops;
  PerPhase<std::uint64_t> bytes; ///< as the kernels declare them
  PerPhase<double> seconds;
};

/// All launches of one kernel.
struct KernelTimes {
  std::uint64_t launches = 0;
  std::uint64_t flops = 0;
  std::uint64_t bytes = 0; ///< as the kernel declares them
  double seconds = 0;
};

/// By label.
using KernelTable = std::map<std::string, KernelTimes, std::less<>>;

/// Where this thread's kernels are entered; null: nowhere.
KernelTable* kernel_table();

/// While it lives, the kernels of its thread are entered in `table` (null: nowhere). Each kernel is timed on its own:
/// on devices the host then waits for every kernel. When it ends, the table before is used again.
class ThreadKernelTable {
public:
  explicit ThreadKernelTable(KernelTable* table);
  ThreadKernelTable(ThreadKernelTable const&) = delete;
  ThreadKernelTable& operator=(ThreadKernelTable const&) = delete;
  ~ThreadKernelTable();

private:
  KernelTable* m_before;
};

/// The counters of this process, or of this thread if it has ThreadCounters. Callers subtract or reset.
Counters& counters();

/// While it lives, the work of its thread is counted in `counted`. When it ends, the counters before are used again.
class ThreadCounters {
public:
  explicit ThreadCounters(Counters& counted);
  ThreadCounters(ThreadCounters const&) = delete;
  ThreadCounters& operator=(ThreadCounters const&) = delete;
  ~ThreadCounters();

private:
  Counters* m_before;
};

/// Adds all but seconds to counters().
void add_work(Counters const& more);

/// GEMM and attention only: what predictions are compared with.
std::uint64_t model_flops(Counters const& counted);
/// Kernels of all phases.
std::uint64_t total_launches(Counters const& counted);

} // namespace trainstone
