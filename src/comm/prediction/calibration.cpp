#include "comm/prediction/calibration.hpp"

#include "comm/execution/execution.hpp"
#include "comm/execution/shared_segment.hpp"
#include "comm/prediction/calibration_probes.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>

namespace trainstone {

namespace {

using Element = float;
using SamplesOfProbes = std::map<Probe, std::vector<double>>; ///< seconds of the whole probe, per pass

constexpr std::uint64_t smallest_bytes = 8;
constexpr double least_seconds = 1e-9; // of a difference that noise has made negative

/// The quarter quantile: what disturbs a machine only makes it slower, and more often than not for several samples in
/// a row; on a quiet one it is the median within 2 %.
double typical(std::vector<double> values) {
  std::ranges::sort(values);
  return values[(values.size() - 1) / 4];
}

/// Runs the probes of one size against each other.
class Prober {
public:
  Prober(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
         CalibrationOptions const& options)
      : m_exec(exec),
        m_communicator(communicator),
        m_timing(options.timing),
        m_segment(communicator, ledger, MemoryCategory::buffers, "calibration", bytes_needed(options)) {
    std::ranges::fill(std::span(m_segment.bytes().data(), m_segment.bytes().extent(0)), std::byte{});
    for (Probe const probe : probes)
      if (is_possible(probe, communicator.topology(), true)) m_probes.push_back(probe);
  }

  Topology const& topology() const { return m_communicator.topology(); }

  SamplesOfProbes measure(Index elements) {
    std::vector<TimedCall> calls;
    for (Probe const probe : m_probes) calls.push_back(call_of(make_probe(probe, topology(), rank(), elements)));
    std::vector<TimedSamples> const samples = time_interleaved(m_communicator, calls, m_timing);
    SamplesOfProbes seconds;
    for (std::size_t i = 0; i < m_probes.size(); ++i) seconds[m_probes[i]] = samples[i].seconds;
    return seconds;
  }

private:
  Rank rank() const { return m_communicator.rank(); }

  std::uint64_t bytes_needed(CalibrationOptions const& options) const {
    auto const largest = static_cast<Index>(options.max_bytes / sizeof(Element));
    Schedule const probe = make_probe(Probe::copy, topology(), rank(), largest);
    return static_cast<std::uint64_t>(probe.elements + probe.scratch_elements) * sizeof(Element) + 2 * Arena::alignment;
  }

  TimedCall call_of(Schedule schedule) {
    Arena arena(m_segment.bytes());
    Vector<Element> const data = arena.vector<Element>("data", schedule.elements);
    Vector<Element> const scratch = arena.vector<Element>("scratch", schedule.scratch_elements);
    ExecutionOptions options;
    options.segment = &m_segment;
    auto const execution = std::make_shared<Execution>(m_exec, m_communicator, std::move(schedule), Operation::sum,
                                                       data, scratch, options);
    return [execution, exec = m_exec] {
      execution->run();
      exec.fence("trainstone::comm::calibration: the clock is read");
    };
  }

  ExecutionSpace m_exec;
  Communicator& m_communicator;
  TimingOptions m_timing;
  SharedSegment m_segment;
  std::vector<Probe> m_probes;
};

/// The time of one move: the probe's less `less`'s and its extras', over its repetitions.
double cost(SamplesOfProbes const& seconds, Probe probe, std::optional<Probe> less = {}) {
  double total = typical(seconds.at(probe)) - (less ? typical(seconds.at(*less)) : 0);
  if (int const barriers = extras(probe).barriers; barriers > 0) total -= barriers * cost(seconds, Probe::node_barrier);
  if (int const copies = extras(probe).copies; copies > 0) total -= copies * cost(seconds, Probe::copy);
  return std::max(least_seconds, total / repetitions(probe));
}

/// Of what was just received, which is elsewhere in the caches than what this rank has written itself: by the
/// difference of exchanges with and without, but no less than in own memory.
double reduction_cost(SamplesOfProbes const& seconds) {
  bool const intra = seconds.contains(Probe::exchange_intra);
  Probe const plain = intra ? Probe::exchange_intra : Probe::exchange_inter;
  return std::max(cost(seconds, Probe::exchange_reduce, plain), cost(seconds, Probe::reduce));
}

/// What a curve is measured with; two probes are averaged.
struct CurveSource {
  char const* name; ///< of the curve
  std::array<std::optional<Probe>, 2> probes;
};
constexpr std::array sources{
    CurveSource{"message_intra", {Probe::exchange_intra}},
    CurveSource{"message_inter", {Probe::exchange_inter}},
    CurveSource{"reduce", {Probe::exchange_reduce}},
    CurveSource{"copy", {Probe::copy}},
    // Bytes in a neighbour's memory cost more than those in one's own, and the two have different shares of them; the
    // model has one curve for both.
    CurveSource{"combine", {Probe::combine, Probe::combine_own}},
    CurveSource{"fetch", {Probe::fetch}},
};

/// Of a curve at one size; nothing if it cannot be measured here.
std::optional<TimeSample> sample(CurveSource const& source, SamplesOfProbes const& seconds, Topology const& topology,
                                 Index elements) {
  TimeSample sum{0, 0};
  int count = 0;
  for (std::optional<Probe> const& probe : source.probes) {
    if (!probe || !seconds.contains(*probe)) continue;
    sum.bytes += priced_bytes(*probe, topology, elements, sizeof(Element));
    sum.seconds += *probe == Probe::exchange_reduce ? reduction_cost(seconds) : cost(seconds, *probe);
    ++count;
  }
  if (count == 0) return {};
  return TimeSample{sum.bytes / count, sum.seconds / count};
}

void add_costs(Calibration& calibration, SamplesOfProbes const& seconds, Topology const& topology, Index elements,
               bool held_out) {
  for (CurveSource const& source : sources) {
    std::optional<TimeSample> const measured = sample(source, seconds, topology, elements);
    if (!measured) continue;
    auto curve = std::ranges::find(calibration.curves, source.name, &CalibratedCurve::name);
    if (curve == calibration.curves.end()) {
      curve = calibration.curves.insert(curve, {.name = source.name, .fitted = {}, .held_out = {}});
    }
    (held_out ? curve->held_out : curve->fitted).push_back(*measured);
  }
  auto const add_pair = [&](Link link, Probe exchange, Probe one_way) {
    if (!seconds.contains(exchange)) return;
    double const bytes = priced_bytes(exchange, topology, elements, sizeof(Element));
    calibration.messages.push_back({link, bytes, cost(seconds, exchange), cost(seconds, one_way)});
  };
  add_pair(Link::intra, Probe::exchange_intra, Probe::one_way_intra);
  add_pair(Link::inter, Probe::exchange_inter, Probe::one_way_inter);
}

} // namespace

Calibration calibrate_communication(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                                    CalibrationOptions const& options) {
  TRAINSTONE_REQUIRE(options.max_bytes >= smallest_bytes && options.factor >= 2, "sizes to {} bytes by a factor of {}",
                     options.max_bytes, options.factor);
  Prober prober(exec, communicator, ledger, options);
  Calibration calibration;
  std::vector<double> barriers;
  auto const measure = [&](std::uint64_t bytes, bool held_out) {
    auto const elements = static_cast<Index>(bytes / sizeof(Element));
    SamplesOfProbes const seconds = prober.measure(elements);
    add_costs(calibration, seconds, prober.topology(), elements, held_out);
    if (seconds.contains(Probe::node_barrier)) barriers.push_back(cost(seconds, Probe::node_barrier));
  };
  for (std::uint64_t bytes = smallest_bytes; bytes <= options.max_bytes; bytes *= options.factor) {
    measure(bytes, false);
    std::uint64_t const between = bytes + bytes / 2;
    if (options.hold_out && between <= options.max_bytes) measure(between, true);
  }
  for (NamedCurve const& named : named_curves(calibration.machine)) {
    auto const curve = std::ranges::find(calibration.curves, named.name, &CalibratedCurve::name);
    if (curve != calibration.curves.end()) *named.curve = fit_curve(curve->fitted);
  }
  if (!barriers.empty()) calibration.machine.node_barrier = typical(barriers);
  return calibration;
}

std::vector<std::pair<std::string, double>> drift(ExecutionSpace const& exec, Communicator& communicator,
                                                  FittedMachine const& machine) {
  MemoryLedger ledger;
  CalibrationOptions options;
  options.max_bytes = 32768;
  options.factor = 64;
  options.hold_out = false;
  options.timing.samples = 8;
  Calibration const now = calibrate_communication(exec, communicator, ledger, options);
  std::vector<std::pair<std::string, double>> ratios;
  FittedMachine known = machine;
  for (NamedCurve const& named : named_curves(known)) {
    auto const curve = std::ranges::find(now.curves, named.name, &CalibratedCurve::name);
    if (!*named.curve || curve == now.curves.end()) continue;
    std::vector<double> of_sizes;
    for (TimeSample const& one : curve->fitted) of_sizes.push_back(one.seconds / (*named.curve)->curve(one.bytes));
    std::ranges::sort(of_sizes);
    ratios.emplace_back(named.name, of_sizes[of_sizes.size() / 2]);
  }
  if (machine.node_barrier && now.machine.node_barrier)
    ratios.emplace_back("node_barrier", *now.machine.node_barrier / *machine.node_barrier);
  return ratios;
}

} // namespace trainstone
