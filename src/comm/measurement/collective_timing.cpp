#include "comm/measurement/collective_timing.hpp"

#include "comm/execution/control.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace trainstone {

namespace {

using Clock = std::chrono::steady_clock;

/// Seconds per call on the slowest rank.
double time_calls(Communicator const& communicator, TimedCall const& call, int calls) {
  barrier(communicator);
  auto const start = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  double const mine = seconds_since(start) / calls;
  return std::ranges::max(all_gather_values(communicator, mine)); // the same on all ranks
}

} // namespace

int calls_of_sample(double seconds, TimingOptions const& options) {
  constexpr int enough = 20;
  constexpr double most = 1e6; // a call that takes no time
  double const fill = std::min(most, std::ceil(options.sample_seconds / std::max(seconds, 1e-9)));
  if (fill >= enough) return static_cast<int>(fill);
  return std::clamp(static_cast<int>(10 * options.sample_seconds / seconds), static_cast<int>(fill), enough);
}

std::vector<TimedSamples> time_interleaved(Communicator const& communicator, std::span<TimedCall const> calls,
                                           TimingOptions const& options) {
  TRAINSTONE_REQUIRE(options.samples >= 2 && options.samples % 2 == 0, "{} samples are no even number",
                     options.samples);
  TRAINSTONE_REQUIRE(options.warmup_calls >= 0 && options.calls >= 0, "{} warm-up calls, {} calls per sample",
                     options.warmup_calls, options.calls);
  std::vector<TimedSamples> results(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (int call = 0; call < options.warmup_calls; ++call) calls[i]();
    // twice: a first time may be long for reasons that never come back
    double const once = std::min(time_calls(communicator, calls[i], 1), time_calls(communicator, calls[i], 1));
    results[i].calls = options.calls > 0 ? options.calls : calls_of_sample(once, options);
  }
  for (int pass = 0; pass < options.samples; ++pass) {
    for (std::size_t step = 0; step < calls.size(); ++step) {
      std::size_t const i = pass % 2 == 0 ? step : calls.size() - 1 - step;
      results[i].seconds.push_back(time_calls(communicator, calls[i], results[i].calls));
    }
  }
  return results;
}

} // namespace trainstone
