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
#include <optional>
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

template <class T>
void fill(ExecutionSpace const& exec, T* data, Index count, float value) {
  launch_for(
      {"trainstone::peaks::fill"}, range(exec, count), KOKKOS_LAMBDA(Index i) { data[i] = from_float<T>(value); });
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
  float factor, tolerance; ///< what C is of the sum, and how far off it may be, relatively
  static constexpr Index samples = 101;

  KOKKOS_FUNCTION void operator()(Index sample, Index& wrong) const {
    Index const i = sample * 7919 % shape.m, j = sample * 104729 % shape.n;
    float sum = 0;
    for (Index l = 0; l < shape.k; ++l) {
      float const a = small_number(shape.a == Transpose::no ? i * shape.k + l : l * shape.m + i);
      float const b = small_number(shape.b == Transpose::no ? l * shape.n + j : j * shape.k + l);
      sum += a * b;
    }
    float const right = to_float(from_float<Output>(factor * sum));
    if (!(Kokkos::abs(to_float(c[i * shape.n + j]) - right) <= tolerance * Kokkos::abs(right))) ++wrong;
  }
};

/// The relative distance of neighbours in the narrowest type.
constexpr float step_of_bf16 = 0x1p-7F;

/// A product with its memory.
template <class Input, class Output>
class MeasuredProduct {
public:
  MeasuredProduct(ExecutionSpace const& exec, GemmMethod const& method, GemmShape const& shape)
      : m_exec(exec), m_method(method), m_shape(shape) {
    EpilogueKind const kind = shape.epilogue;
    bool const has_bias = kind == EpilogueKind::bias || kind == EpilogueKind::bias_gelu;
    bool const has_pre = kind == EpilogueKind::bias_gelu || kind == EpilogueKind::gelu_gradient;
    Index const bias = has_bias ? shape.n : 0, pre = has_pre ? shape.m : 0;
    Index const gradient = kind == EpilogueKind::bias_gradient ? shape.m : 0;
    auto const scratch = static_cast<Index>(gemm_scratch_bytes(method.provider, shape));
    m_memory.emplace(m_ledger, MemoryCategory::buffers, "peaks",
                     total_bytes({planned<Input>("A", shape.m * shape.k), planned<Input>("B", shape.k * shape.n),
                                  planned<Output>("C", shape.m * shape.n), planned<Input>("bias", bias),
                                  planned<Output>("pre", pre * shape.n), planned<Output>("bias gradient", gradient),
                                  planned<std::byte>("scratch", scratch)}));
    Arena arena(m_memory->bytes());
    m_a = stored(arena, "A", shape.m, shape.k, shape.a);
    m_b = stored(arena, "B", shape.k, shape.n, shape.b);
    m_c = arena.matrix<Output>("C", shape.m, shape.n);
    m_bias = arena.vector<Input>("bias", bias);
    m_pre = arena.matrix<Output>("pre", pre, shape.n);
    m_epilogue = {
        .kind = kind, .bias = m_bias, .pre = m_pre, .bias_gradient = arena.vector<Output>("bias gradient", gradient)};
    m_gemm.emplace(GemmChoice(method.provider, {{shape, method}}), arena.vector<std::byte>("scratch", scratch));
  }

  void operator()() { (*m_gemm)(m_exec, m_shape.a, m_a, m_shape.b, m_b, m_c, m_shape.mode, m_epilogue); }

  /// Computes once, into zeros, with a bias of 0. A GELU's gradient at 0 is 1/2, up to rounding of its parts.
  void check() {
    fill_small_numbers(m_exec, m_a);
    fill_small_numbers(m_exec, m_b);
    fill(m_exec, m_c.data(), static_cast<Index>(m_c.size()), 0);
    fill(m_exec, m_bias.data(), static_cast<Index>(m_bias.size()), 0);
    fill(m_exec, m_pre.data(), static_cast<Index>(m_pre.size()), 0);
    (*this)();
    bool const halves = m_shape.epilogue == EpilogueKind::gelu_gradient;
    Output const* const product = m_shape.epilogue == EpilogueKind::bias_gelu ? m_pre.data() : m_c.data();
    Index wrong = 0;
    launch_reduce({"trainstone::peaks::check_gemm"}, range(m_exec, CountWrongProducts<Output>::samples),
                  CountWrongProducts<Output>{m_shape, product, halves ? 0.5F : 1.0F, halves ? step_of_bf16 : 0.0F},
                  wrong);
    TRAINSTONE_REQUIRE(wrong == 0, "GEMM provider {} computed {} of {} sampled elements wrongly for {}",
                       to_string(m_method), wrong, CountWrongProducts<Output>::samples, to_string(m_shape));
  }

private:
  static Matrix<Input> stored(Arena& arena, char const* label, Index rows, Index columns, Transpose transpose) {
    return transpose == Transpose::no ? arena.matrix<Input>(label, rows, columns)
                                      : arena.matrix<Input>(label, columns, rows);
  }

  ExecutionSpace m_exec;
  GemmMethod m_method;
  GemmShape m_shape;
  MemoryLedger m_ledger;
  std::optional<Allocation> m_memory;
  Matrix<Input> m_a, m_b;
  Matrix<Output> m_c, m_pre;
  Vector<Input> m_bias;
  Epilogue m_epilogue;
  std::optional<Gemm> m_gemm;
};

template <class Input, class Output>
double gemm_rate(ExecutionSpace const& exec, GemmMethod const& method, GemmShape const& shape, double seconds) {
  MeasuredProduct<Input, Output> product(exec, method, shape);
  product.check();
  return static_cast<double>(shape.flops()) / shortest_time(exec, seconds, [&] { product(); });
}

double gemm_rate_of_types(ExecutionSpace const& exec, GemmMethod const& method, GemmShape const& shape,
                          double seconds) {
  return with_storage(shape.inputs, [&]<class Input>() {
    return shape.output == Storage::fp32 ? gemm_rate<Input, float>(exec, method, shape, seconds)
                                         : gemm_rate<Input, Input>(exec, method, shape, seconds);
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

GemmPeak measure_gemm_peak(ExecutionSpace const& exec, GemmMethod const& method, std::span<GemmShape const> shapes,
                           double seconds) {
  CountersGuard const guard;
  GemmPeak best;
  for (GemmShape const& shape : shapes) {
    double const rate = gemm_rate_of_types(exec, method, shape, seconds / static_cast<double>(shapes.size()));
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
