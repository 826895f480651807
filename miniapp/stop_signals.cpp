#include "stop_signals.hpp"

#include <array>

namespace trainstone {

namespace {

std::sig_atomic_t volatile last_signal = 0;

void note(int signal) { last_signal = signal; }

struct Named {
  int signal;
  char const* name;
};

constexpr std::array signals{Named{SIGUSR1, "SIGUSR1"}, Named{SIGUSR2, "SIGUSR2"}, Named{SIGTERM, "SIGTERM"}};

} // namespace

StopSignals::StopSignals(bool handles) {
  if (!handles) return;
  for (Named const& named : signals) {
    struct sigaction action = {}, before = {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART; // of reads and writes
    sigaction(named.signal, &action, &before);
    m_handled.push_back({named.signal, before});
  }
}

StopSignals::~StopSignals() {
  for (Handled const& handled : m_handled) sigaction(handled.signal, &handled.before, nullptr);
}

char const* StopSignals::received() {
  for (Named const& named : signals)
    if (named.signal == last_signal) return named.name;
  return nullptr;
}

} // namespace trainstone
