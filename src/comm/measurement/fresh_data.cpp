#include "comm/measurement/fresh_data.hpp"

#include "comm/execution/reduce.hpp"
#include "comm/prediction/machine_fit.hpp"
#include "core/launch.hpp"
#include "core/types.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace trainstone {

namespace {

/// Not zero: a loop that writes zeros becomes a library's, which passes caches by.
template <class T>
T one() {
  if constexpr (std::is_arithmetic_v<T>) {
    return T{1};
  } else {
    return from_float<T>(1);
  }
}

/// Written by who calculates, as the executor's kernels are run.
template <class T>
void write_all(ExecutionSpace const& exec, Vector<T> data, T value) {
  std::size_t const bytes = data.extent(0) * sizeof(T);
  if constexpr (launches_wait) {
    if (bytes <= largest_inline_bytes) {
      for (std::size_t i = 0; i < data.extent(0); ++i) data(i) = value;
      return;
    }
  }
  using Policy = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;
  launch_for(
      {"trainstone::comm::write_fresh", Phase::other, 0, bytes}, Policy(exec, 0, static_cast<Index>(data.extent(0))),
      KOKKOS_LAMBDA(Index i) { data(i) = value; });
}

struct ReadLines {
  static constexpr std::size_t line = 32;
  std::byte const* data;

  KOKKOS_FUNCTION void operator()(Index i, std::uint64_t& sum) const {
    sum += static_cast<std::uint64_t>(data[static_cast<std::size_t>(i) * line]);
  }
};

/// \return a sum that depends on every line
std::uint64_t read_all(ExecutionSpace const& exec, std::span<std::byte const> data) {
  auto const lines = static_cast<Index>((data.size() + ReadLines::line - 1) / ReadLines::line);
  ReadLines const body{data.data()};
  std::uint64_t sum = 0;
  if constexpr (launches_wait) {
    if (data.size() <= largest_inline_bytes) {
      for (Index i = 0; i < lines; ++i) body(i, sum);
      return sum;
    }
  }
  using Policy = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;
  launch_reduce({"trainstone::comm::read_fresh", Phase::other, 0, data.size()}, Policy(exec, 0, lines), body, sum);
  return sum;
}

} // namespace

template <class T>
TimedCall write_call(ExecutionSpace const& exec, Vector<T> data) {
  return [data, exec, label = std::string("trainstone::comm::write_call: the data is written")] {
    write_all<T>(exec, data, one<T>());
    wait_for_kernels(exec, label);
  };
}

template TimedCall write_call(ExecutionSpace const&, Vector<float>);
template TimedCall write_call(ExecutionSpace const&, Vector<double>);
template TimedCall write_call(ExecutionSpace const&, Vector<std::int32_t>);
template TimedCall write_call(ExecutionSpace const&, Vector<std::int64_t>);
template TimedCall write_call(ExecutionSpace const&, Vector<bf16>);
template TimedCall write_call(ExecutionSpace const&, Vector<fp16>);

TimedCall read_call(ExecutionSpace const& exec, std::span<std::byte const> data) {
  return [data, exec] {
    std::uint64_t const volatile sum = read_all(exec, data); // else nothing would be read
    static_cast<void>(sum);
  };
}

std::vector<TimedSamples> time_fresh(Communicator const& communicator, std::vector<FreshCall> const& calls,
                                     TimedCall const& write, TimedCall const& read_own, TimingOptions const& options) {
  constexpr double least_seconds = 1e-9; // where noise has made the difference negative
  std::vector<TimedCall> fresh;
  for (auto const& [call, read] : calls) {
    fresh.push_back([&write, &call, &read] {
      write();
      call();
      read();
    });
  }
  fresh.push_back([&write, &read_own] {
    write();
    read_own();
  });
  std::vector<TimedSamples> samples = time_interleaved(communicator, fresh, options);
  TimedSamples const apart = std::move(samples.back());
  samples.pop_back();
  double const seconds_apart = median(apart.seconds); // a sample that was interrupted must not make a call look fast
  for (TimedSamples& one_call : samples)
    for (double& seconds : one_call.seconds) seconds = std::max(least_seconds, seconds - seconds_apart);
  return samples;
}

} // namespace trainstone
