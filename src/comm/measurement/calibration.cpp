#include "comm/measurement/calibration.hpp"

#include "comm/execution/execution.hpp"
#include "comm/measurement/calibration_probes.hpp"
#include "comm/measurement/fresh_data.hpp"
#include "comm/measurement/measured_memory.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

namespace trainstone {

namespace {

using Element = float;
using SamplesOfProbes = std::map<Probe, std::vector<double>>; ///< seconds of the whole probe

constexpr std::uint64_t smallest_bytes = 8;
constexpr double least_seconds = 1e-9; // of a difference that noise has made negative

/// One size, and what was measured there.
struct ProbedSize {
  Index elements;
  bool held_out;
  SamplesOfProbes seconds = {};
};

std::vector<ProbedSize> sizes_of(CalibrationOptions const& options) {
  std::vector<ProbedSize> sizes;
  auto const add = [&](std::uint64_t bytes, bool held_out) {
    if (bytes <= options.max_bytes) sizes.push_back({static_cast<Index>(bytes / sizeof(Element)), held_out});
  };
  for (std::uint64_t bytes = smallest_bytes; bytes <= options.max_bytes; bytes *= options.factor) {
    add(bytes, false);
    if (options.hold_out) add(bytes + bytes / 2, true);
  }
  return sizes;
}

/// Runs the probes of one size against each other.
class Prober {
public:
  Prober(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
         CalibrationOptions const& options)
      : m_exec(exec),
        m_communicator(communicator),
        m_timing(options.timing),
        m_memory(exec, communicator, ledger, "calibration", bytes_needed(options), options.shared_memory) {
    for (Probe const probe : possible_probes(options))
      (needs_fresh_data(probe) ? m_fresh_probes : m_probes).push_back(probe);
  }

  Topology const& topology() const { return m_communicator.topology(); }

  /// Adds samples to what was measured at this size.
  void measure(ProbedSize& size) {
    append(size, m_probes, time_interleaved(m_communicator, calls_of(m_probes, size.elements), m_timing));
    if (m_fresh_probes.empty()) return;
    TimedCall const write = write_call(m_exec, Arena(m_memory.bytes()).vector<Element>("data", size.elements));
    // The second half is what a fetch or a push has written here.
    Vector<Element> const both = Arena(m_memory.bytes()).vector<Element>("data", 2 * size.elements);
    TimedCall const read = read_call(m_exec, std::as_bytes(std::span(both.data(), both.extent(0))));
    std::vector<FreshCall> calls;
    for (TimedCall& call : calls_of(m_fresh_probes, size.elements)) calls.push_back({std::move(call), read});
    append(size, m_fresh_probes, time_fresh(m_communicator, calls, write, read, m_timing));
  }

private:
  std::vector<Probe> possible_probes(CalibrationOptions const& options) const {
    std::vector<Probe> possible;
    for (Probe const probe : probes) {
      bool const of_node_ports = probe == Probe::exchange_inter_alone || probe == Probe::one_way_inter_alone;
      if (of_node_ports && !options.node_ports) continue;
      if (is_possible(probe, topology(), options.shared_memory)) possible.push_back(probe);
    }
    return possible;
  }

  MeasuredBytes bytes_needed(CalibrationOptions const& options) const {
    auto const largest = static_cast<Index>(options.max_bytes / sizeof(Element));
    MeasuredBytes needed;
    for (Probe const probe : possible_probes(options)) {
      Schedule const schedule = make_probe(probe, topology(), m_communicator.rank(), largest);
      needed.include({.data = static_cast<std::uint64_t>(schedule.elements) * sizeof(Element),
                      .scratch = static_cast<std::uint64_t>(schedule.scratch_elements) * sizeof(Element),
                      .staging = staging_bytes(m_communicator.buffers(), schedule, sizeof(Element))});
    }
    return needed;
  }

  static void append(ProbedSize& size, std::vector<Probe> const& measured, std::vector<TimedSamples> const& samples) {
    for (std::size_t i = 0; i < measured.size(); ++i) {
      std::vector<double>& all = size.seconds[measured[i]];
      all.insert(all.end(), samples[i].seconds.begin(), samples[i].seconds.end());
    }
  }

  std::vector<TimedCall> calls_of(std::vector<Probe> const& wanted, Index elements) {
    std::vector<TimedCall> calls;
    for (Probe const probe : wanted)
      calls.push_back(call_of(make_probe(probe, topology(), m_communicator.rank(), elements)));
    return calls;
  }

  TimedCall call_of(Schedule schedule) {
    Arena arena(m_memory.bytes());
    Vector<Element> const data = arena.vector<Element>("data", schedule.elements);
    Vector<Element> const scratch = arena.vector<Element>("scratch", schedule.scratch_elements);
    MeasuredBuffers const& buffers = m_memory.buffers();
    auto const execution =
        std::make_shared<Execution>(m_exec, m_communicator, std::move(schedule), Operation::sum, data, scratch,
                                    ExecutionOptions{.segment = buffers.segment, .staging = buffers.staging});
    return [execution, exec = m_exec, label = std::string("trainstone::comm::calibration: the clock is read")] {
      execution->run();
      wait_for_kernels(exec, label);
    };
  }

  ExecutionSpace m_exec;
  Communicator& m_communicator;
  TimingOptions m_timing;
  MeasuredMemory m_memory;
  std::vector<Probe> m_probes;
  std::vector<Probe> m_fresh_probes;
};

/// The time of one move: the probe's less `less`'s and its barriers', over its repetitions.
double cost(SamplesOfProbes const& seconds, Probe probe, std::optional<Probe> less = {}) {
  double total = median(seconds.at(probe)) - (less ? median(seconds.at(*less)) : 0);
  if (int const barriers = extra_barriers(probe); barriers > 0) total -= barriers * cost(seconds, Probe::node_barrier);
  return std::max(least_seconds, total / repetitions(probe));
}

/// Of what was just received, which is elsewhere in the caches than what this rank has written itself: by the
/// difference of exchanges with and without, but no less than in own memory.
double reduction_cost(SamplesOfProbes const& seconds) {
  bool const intra = seconds.contains(Probe::exchange_intra);
  Probe const plain = intra ? Probe::exchange_intra : Probe::exchange_inter;
  return std::max(cost(seconds, Probe::exchange_reduce, plain), cost(seconds, Probe::reduce));
}

/// What a curve is measured with.
struct CurveSource {
  char const* name; ///< of the curve
  Probe probe;
};
constexpr std::array sources{
    CurveSource{"message_intra", Probe::exchange_intra},
    CurveSource{"message_inter", Probe::exchange_inter},
    CurveSource{"one_way_intra", Probe::one_way_intra},
    CurveSource{"one_way_inter", Probe::one_way_inter},
    CurveSource{"reduce", Probe::exchange_reduce},
    CurveSource{"copy", Probe::copy},
    CurveSource{"combine_to_own", Probe::combine_to_own},
    CurveSource{"combine_to_all", Probe::combine_to_all},
    CurveSource{"fetch", Probe::fetch},
    CurveSource{"push", Probe::push},
};

/// How much of reductions exchanges hide; nothing if there is no such link.
std::optional<double> overlap(std::vector<ProbedSize> const& sizes, Probe exchange, Probe overlapping) {
  std::vector<double> shares;
  for (auto const& [elements, held_out, seconds] : sizes) {
    if (held_out || !seconds.contains(exchange)) continue;
    double const one_after_the_other = cost(seconds, exchange) + cost(seconds, Probe::reduce);
    double const hidden = one_after_the_other - cost(seconds, overlapping);
    shares.push_back(std::clamp(hidden / std::min(cost(seconds, exchange), cost(seconds, Probe::reduce)), 0.0, 1.0));
  }
  return shares.empty() ? std::nullopt : std::optional(median(shares));
}

/// How many messages to other nodes a node's ranks send at the same time; 0: pairs of ranks do not slow each other
/// down. From the larger half of the sizes, whose messages fill the wire.
int ports_of_nodes(std::vector<ProbedSize> const& sizes, Topology const& topology) {
  constexpr double slowed_down = 1.25;
  std::vector<double> slower;
  for (std::size_t i = sizes.size() / 2; i < sizes.size(); ++i)
    if (sizes[i].seconds.contains(Probe::exchange_inter_alone))
      slower.push_back(cost(sizes[i].seconds, Probe::exchange_inter) /
                       cost(sizes[i].seconds, Probe::exchange_inter_alone));
  double const factor = slower.empty() ? 1 : median(std::move(slower));
  if (factor < slowed_down) return 0;
  return std::max(1, static_cast<int>(std::lround(static_cast<double>(most_pairs_of_nodes(topology)) / factor)));
}

/// Where ranks of a node share ports, a message's time is that of one pair.
Probe measured_with(Probe probe, int node_ports) {
  if (node_ports > 0 && probe == Probe::exchange_inter) return Probe::exchange_inter_alone;
  if (node_ports > 0 && probe == Probe::one_way_inter) return Probe::one_way_inter_alone;
  return probe;
}

void add_costs(Calibration& calibration, ProbedSize const& size, Topology const& topology) {
  for (auto const& [name, source] : sources) {
    Probe const probe = measured_with(source, calibration.machine.node_ports);
    if (!size.seconds.contains(probe)) continue;
    auto curve = std::ranges::find(calibration.curves, name, &CalibratedCurve::name);
    if (curve == calibration.curves.end())
      curve = calibration.curves.insert(curve, {.name = name, .fitted = {}, .held_out = {}});
    double const seconds = probe == Probe::exchange_reduce ? reduction_cost(size.seconds) : cost(size.seconds, probe);
    (size.held_out ? curve->held_out : curve->fitted)
        .push_back({priced_bytes(probe, topology, size.elements, sizeof(Element)), seconds});
  }
}

} // namespace

Calibration calibrate_communication(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                                    CalibrationOptions const& options) {
  TRAINSTONE_REQUIRE(options.max_bytes >= smallest_bytes && options.factor >= 2, "sizes to {} bytes by a factor of {}",
                     options.max_bytes, options.factor);
  Prober prober(exec, communicator, ledger, options);
  std::vector<ProbedSize> sizes = sizes_of(options);
  for (int pass = 0; pass < options.passes; ++pass)
    for (ProbedSize& size : sizes) prober.measure(size);
  Calibration calibration;
  calibration.machine.node_ports =
      options.known_node_ports > 0 ? options.known_node_ports : ports_of_nodes(sizes, prober.topology());
  std::vector<double> barriers;
  for (ProbedSize const& size : sizes) {
    add_costs(calibration, size, prober.topology());
    if (size.seconds.contains(Probe::node_barrier)) barriers.push_back(cost(size.seconds, Probe::node_barrier));
  }
  for (NamedCurve const& named : named_curves(calibration.machine)) {
    auto const curve = std::ranges::find(calibration.curves, named.name, &CalibratedCurve::name);
    if (curve != calibration.curves.end()) *named.curve = fit_curve(curve->fitted);
  }
  calibration.machine.overlap = {overlap(sizes, Probe::exchange_intra, Probe::overlap_intra),
                                 overlap(sizes, Probe::exchange_inter, Probe::overlap_inter)};
  if (!barriers.empty()) calibration.machine.node_barrier = median(barriers);
  return calibration;
}

std::vector<std::pair<std::string, double>> drift(ExecutionSpace const& exec, Communicator& communicator,
                                                  FittedMachine const& machine, bool shared_memory) {
  MemoryLedger ledger;
  CalibrationOptions options;
  options.max_bytes = 32768;
  options.factor = 64;
  options.hold_out = false;
  options.passes = 1;
  options.timing.samples = 8;
  options.shared_memory = shared_memory;
  options.known_node_ports = machine.node_ports;
  options.node_ports = machine.node_ports > 0;
  Calibration const now = calibrate_communication(exec, communicator, ledger, options);
  std::vector<std::pair<std::string, double>> ratios;
  FittedMachine known = machine;
  for (NamedCurve const& named : named_curves(known)) {
    auto const curve = std::ranges::find(now.curves, named.name, &CalibratedCurve::name);
    if (!*named.curve || curve == now.curves.end()) continue;
    std::vector<double> of_sizes;
    for (TimeSample const& one : curve->fitted) of_sizes.push_back(one.seconds / (*named.curve)->curve(one.bytes));
    ratios.emplace_back(named.name, median(std::move(of_sizes)));
  }
  if (machine.node_barrier && now.machine.node_barrier)
    ratios.emplace_back("node_barrier", *now.machine.node_barrier / *machine.node_barrier);
  return ratios;
}

} // namespace trainstone
