#pragma once

// Watches what the library starts, through Kokkos Tools' callbacks and the launch wrapper's observer. While a
// ToolsGuard lives, it records as violations
//   - labels of kernels, regions and allocations without the prefix "trainstone::" (what Kokkos, its kernels library
//     and HostSpace emit themselves is exempt),
//   - kernels that run on another instance than the given one, or that were not started by the launch wrapper,
//   - fences without a reason, and fences of another instance, or of all.
// Collectives may have instances of their own: that is said when the guard is made, and holds for kernels and fences
// whose labels begin with "trainstone::comm::", not for fences of all instances. One guard at a time. Tests make their
// own Views before the guard, or outside its scope.

#include "core/launch.hpp"
#include "core/views.hpp"

#include <string>
#include <vector>

namespace trainstone::test {

/// Where the kernels of collectives may run.
enum class CollectiveInstances { the_given, their_own };

/// As an engine has it (comm/execution/buffers.hpp: communication_instance).
inline constexpr CollectiveInstances engine_collectives =
    launches_wait ? CollectiveInstances::the_given : CollectiveInstances::their_own;

class ToolsGuard {
public:
  explicit ToolsGuard(ExecutionSpace const& exec, CollectiveInstances collectives = CollectiveInstances::the_given);
  ToolsGuard(ToolsGuard const&) = delete;
  ToolsGuard& operator=(ToolsGuard const&) = delete;
  ~ToolsGuard();

  /// What was wrong so far, one line each; empty if nothing.
  std::vector<std::string> const& violations() const;
  /// Labels with the prefix of the kernels seen so far, in order of their start.
  std::vector<std::string> const& kernels() const;
  /// Reasons of the fences seen so far that are not Kokkos' own.
  std::vector<std::string> const& fences() const;

private:
  LaunchObserver::Scoped m_observer;
};

} // namespace trainstone::test
