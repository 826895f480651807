#pragma once

// SIGUSR1, SIGUSR2 and SIGTERM as batch systems send them before a job's time is up. Owns their handlers while it
// lives.

#include <csignal>
#include <vector>

namespace trainstone {

class StopSignals {
public:
  /// Handles them only if asked to: else they end the process, as ever.
  explicit StopSignals(bool handles);
  StopSignals(StopSignals const&) = delete;
  StopSignals& operator=(StopSignals const&) = delete;
  ~StopSignals();

  /// Whether this process got one of them.
  static bool received();

private:
  struct Handled {
    int signal;
    struct sigaction before;
  };
  std::vector<Handled> m_handled;
};

} // namespace trainstone
