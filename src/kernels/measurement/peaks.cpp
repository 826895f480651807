#include "kernels/measurement/peaks.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/memory.hpp"
#include "core/stored.hpp"
#include "kernels/gemm/gemm.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace trainstone {

namespace {

/// Measurements are no work of the run: whatever they count is taken back.
class CountersGuard {
public:
  CountersGuard() = default;
  CountersGuard(CountersGuard const&) = delete;
  CountersGuard& operator=(CountersGuard const&) = delete;
  ~CountersGuard() { counters() = m_before; }

private:
  Counters m_before = counters();
};

/// The shortest of at least three runs within about `seconds`.
double shortest_time(ExecutionSpace const& exec, double seconds, std::function<void()> const& run) {
  using Clock = std::chrono::steady_clock;
  exec.fence("trainstone::peaks: before timing");
  auto const begin = Clock::now();
  double shortest = 0;
  for (int runs = 0; runs < 3 || seconds_since(begin) < seconds; ++runs) {
    auto const start = Clock::now();
    run();
    exec.fence("trainstone::peaks: after one run");
    double const time = seconds_since(start);
    shortest = runs == 0 ? time : std::min(shortest, time);
  }
  return shortest;
}

auto range(ExecutionSpace const& exec, Index count) {
  return Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>(exec, 0, count);
}

// --- matrix products -----------------------------------------------------------------------------------------------

/// Small whole numbers, which every type holds: sums of products of them are exact in fp32, in any order.
KOKKOS_INLINE_FUNCTION float small_number(Index index) { return static_cast<float>(index % 7 - 3); }

template <class T>
void fill_small_numbers(ExecutionSpace const& exec, Matrix<T> matrix) {
  T* const data = matrix.data();
  launch_for(
      {"trainstone::peaks::fill"}, range(exec, static_cast<Index>(matrix.size())),
      KOKKOS_LAMBDA(Index i) { data[i] = from_float<T>(small_number(i)); });
}

/// Compares a sample of C with sums of its own.
template <class Output>
struct CountWrongProducts {
  GemmShape shape;
  Output const* c;
  static constexpr Index samples = 101;

  KOKKOS_FUNCTION void operator()(Index sample, Index& wrong) const {
    Index const i = sample * 7919 % shape.m, j = sample * 104729 % shape.n;
    float sum = 0;
    for (Index l = 0; l < shape.k; ++l) {
      float const a = small_number(shape.a == Transpose::no ? i * shape.k + l : l * shape.m + i);
      float const b = small_number(shape.b == Transpose::no ? l * shape.n + j : j * shape.k + l);
      sum += a * b;
    }
    if (to_float(c[i * shape.n + j]) != to_float(from_float<Output>(sum))) ++wrong;
  }
};

template <class Input, class Output>
double gemm_rate(ExecutionSpace const& exec, GemmProvider provider, GemmShape const& shape, double seconds) {
  auto const stored = [](Index rows, Index columns, Transpose transpose) {
    return transpose == Transpose::no ? std::array{rows, columns} : std::array{columns, rows};
  };
  auto const [a_rows, a_columns] = stored(shape.m, shape.k, shape.a);
  auto const [b_rows, b_columns] = stored(shape.k, shape.n, shape.b);
  GemmShape checked = shape;
  checked.mode = Write::overwrite;
  std::uint64_t const scratch_bytes =
      std::max(gemm_scratch_bytes(provider, shape), gemm_scratch_bytes(provider, checked));
  MemoryLedger ledger;
  Allocation const memory(ledger, MemoryCategory::buffers, "peaks",
                          total_bytes({planned<Input>("A", shape.m * shape.k), planned<Input>("B", shape.k * shape.n),
                                       planned<Output>("C", shape.m * shape.n),
                                       planned<std::byte>("scratch", static_cast<Index>(scratch_bytes))}));
  Arena arena(memory.bytes());
  auto const a = arena.matrix<Input>("A", a_rows, a_columns), b = arena.matrix<Input>("B", b_rows, b_columns);
  auto const c = arena.matrix<Output>("C", shape.m, shape.n);
  Gemm gemm(provider, arena.vector<std::byte>("scratch", static_cast<Index>(scratch_bytes)));

  fill_small_numbers(exec, a);
  fill_small_numbers(exec, b);
  gemm(exec, checked.a, a, checked.b, b, c, checked.mode);
  Index wrong = 0;
  launch_reduce({"trainstone::peaks::check_gemm"}, range(exec, CountWrongProducts<Output>::samples),
                CountWrongProducts<Output>{shape, c.data()}, wrong);
  TRAINSTONE_REQUIRE(wrong == 0, "GEMM provider {} computed {} of {} sampled elements wrongly for m {}, n {}, k {}",
                     to_string(provider), wrong, CountWrongProducts<Output>::samples, shape.m, shape.n, shape.k);
  double const time = shortest_time(exec, seconds, [&] { gemm(exec, shape.a, a, shape.b, b, c, shape.mode); });
  return static_cast<double>(shape.flops()) / time;
}

double gemm_rate_of_types(ExecutionSpace const& exec, GemmProvider provider, GemmShape const& shape, double seconds) {
  return with_storage(shape.inputs, [&]<class Input>() {
    return shape.output == Storage::fp32 ? gemm_rate<Input, float>(exec, provider, shape, seconds)
                                         : gemm_rate<Input, Input>(exec, provider, shape, seconds);
  });
}

// --- bandwidth -----------------------------------------------------------------------------------------------------

/// A factor, because a plain copy becomes a memcpy, which may bypass the cache and so move other bytes than we count.
struct Copy {
  static constexpr std::string_view name = "copy";
  static constexpr char const* label = "trainstone::peaks::copy";
  static constexpr Index arrays = 2, bytes_per_element = host_reaches_memory ? 12 : 8;
  static constexpr float start[] = {3, 1}, end[] = {3, 6};
  float* x[arrays];
  KOKKOS_FUNCTION void operator()(Index i) const { x[1][i] = 2.0f * x[0][i]; }
};

struct Triad {
  static constexpr std::string_view name = "triad";
  static constexpr char const* label = "trainstone::peaks::triad";
  static constexpr Index arrays = 3, bytes_per_element = host_reaches_memory ? 16 : 12;
  static constexpr float start[] = {3, 5, 1}, end[] = {3, 5, 13};
  float* x[arrays];
  KOKKOS_FUNCTION void operator()(Index i) const { x[2][i] = x[0][i] + 2.0f * x[1][i]; }
};

/// The traffic of Adam: gradient, parameter, first and second moment.
struct Update {
  static constexpr std::string_view name = "update";
  static constexpr char const* label = "trainstone::peaks::update";
  static constexpr Index arrays = 4, bytes_per_element = 28;
  static constexpr float start[] = {2, 8, 4, 6}, end[] = {2, 6.5, 3, 5};
  float* x[arrays];
  KOKKOS_FUNCTION void operator()(Index i) const {
    float const gradient = x[0][i];
    float const first = 0.5f * x[2][i] + 0.5f * gradient;
    float const second = 0.5f * x[3][i] + 0.5f * gradient * gradient;
    x[2][i] = first;
    x[3][i] = second;
    x[1][i] -= 0.5f * first;
  }
};

void fill(ExecutionSpace const& exec, float* data, Index count, float value) {
  launch_for({"trainstone::peaks::fill"}, range(exec, count), KOKKOS_LAMBDA(Index i) { data[i] = value; });
}

Index count_other(ExecutionSpace const& exec, float const* data, Index count, float value) {
  Index other = 0;
  launch_reduce(
      {"trainstone::peaks::check_bandwidth"}, range(exec, count),
      KOKKOS_LAMBDA(Index i, Index & wrong) { wrong += data[i] != value ? 1 : 0; }, other);
  return other;
}

template <class Body>
BandwidthPeak measure_bandwidth(ExecutionSpace const& exec, Vector<float> memory, double seconds) {
  Index const alignment = memory_alignment / sizeof(float);
  Index const count = static_cast<Index>(memory.extent(0)) / Body::arrays / alignment * alignment;
  Body body{};
  for (Index i = 0; i < Body::arrays; ++i) {
    body.x[i] = memory.data() + i * count;
    fill(exec, body.x[i], count, Body::start[i]);
  }
  std::uint64_t const bytes = static_cast<std::uint64_t>(count * Body::bytes_per_element);
  auto const run = [&] { launch_for({Body::label, Phase::other, 0, bytes}, range(exec, count), body); };
  run();
  for (Index i = 0; i < Body::arrays; ++i) {
    Index const wrong = count_other(exec, body.x[i], count, Body::end[i]);
    TRAINSTONE_REQUIRE(wrong == 0, "bandwidth kernel {}: {} of {} elements of array {} are not {}", Body::name, wrong,
                       count, i, Body::end[i]);
  }
  return {static_cast<double>(bytes) / shortest_time(exec, seconds, run), Body::name};
}

} // namespace

GemmPeak measure_gemm_peak(ExecutionSpace const& exec, GemmProvider provider, std::span<GemmShape const> shapes,
                           double seconds) {
  CountersGuard const guard;
  GemmPeak best;
  for (GemmShape const& shape : shapes) {
    double const rate = gemm_rate_of_types(exec, provider, shape, seconds / static_cast<double>(shapes.size()));
    if (rate > best.flops_per_second) best = {rate, shape};
  }
  return best;
}

BandwidthPeak measure_bandwidth_peak(ExecutionSpace const& exec, std::uint64_t bytes, double seconds) {
  CountersGuard const guard;
  TRAINSTONE_REQUIRE(bytes >= 4 * memory_alignment, "bandwidth needs at least {} bytes to work on, and was given {}",
                     4 * memory_alignment, bytes);
  MemoryLedger ledger;
  Allocation const allocation(ledger, MemoryCategory::buffers, "peaks", bytes);
  Vector<float> const memory(reinterpret_cast<float*>(allocation.bytes().data()), bytes / sizeof(float));
  BandwidthPeak const measured[] = {measure_bandwidth<Copy>(exec, memory, seconds / 3),
                                    measure_bandwidth<Triad>(exec, memory, seconds / 3),
                                    measure_bandwidth<Update>(exec, memory, seconds / 3)};
  return *std::ranges::max_element(measured, {}, &BandwidthPeak::bytes_per_second);
}

} // namespace trainstone
