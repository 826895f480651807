#pragma once

// A thread beside the main one, which alone hears of signals.

#include <csignal>
#include <thread>
#include <utility>

namespace trainstone {

/// Starts work() on a thread that blocks all signals.
template <class Work>
std::thread thread_without_signals(Work work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

} // namespace trainstone
