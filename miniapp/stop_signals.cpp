#include "stop_signals.hpp"

namespace trainstone {

namespace {

std::sig_atomic_t volatile any_came = 0;

void note(int) { any_came = 1; }

} // namespace

StopSignals::StopSignals(bool handles) {
  if (!handles) return;
  for (int const signal : {SIGUSR1, SIGUSR2, SIGTERM}) {
    struct sigaction action = {}, before = {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART; // of reads and writes
    sigaction(signal, &action, &before);
    m_handled.push_back({signal, before});
  }
}

StopSignals::~StopSignals() {
  for (Handled const& handled : m_handled) sigaction(handled.signal, &handled.before, nullptr);
}

bool StopSignals::received() { return any_came != 0; }

} // namespace trainstone
