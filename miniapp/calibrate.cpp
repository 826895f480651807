// trainstone calibrate: what messages, reductions, copies and shared memory cost on these ranks, as a file that all
// predictions are made from.

#include "commbench.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/buffers_start.hpp"
#include "comm/measurement/calibration.hpp"
#include "core/atomic_file.hpp"
#include "core/plural.hpp"
#include "gemm_table.hpp"
#include "git_version.hpp"
#include "kernels/gemm/library_threads.hpp"
#include "report/calibration_table.hpp"
#include "report/output.hpp"
#include "result/machine_file.hpp"
#include "run_choices.hpp"
#include "run_result.hpp"
#include "train/offload_measurement.hpp"
#include "train/part_measurement.hpp"
#include "train/plan/step_prediction.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

namespace trainstone {

namespace {

void add_errors(FittedCurveText& text, PiecewiseLinear const& curve, std::vector<TimeSample> const& samples,
                bool held_out) {
  if (samples.empty()) return;
  FitErrors const errors = errors_of(curve, samples);
  for (std::size_t i = 0; i < errors.samples.size(); ++i)
    text.errors.push_back({errors.samples[i].bytes, errors.samples[i].seconds, errors.relative[i], held_out});
}

FittedCurveText describe(CalibratedCurve const& measured, PiecewiseLinear const& curve) {
  FittedCurveText text{measured.name, {}, {}};
  for (PiecewiseLinear::Piece const& piece : curve.pieces())
    text.pieces.push_back({piece.from_bytes, piece.start, piece.per_byte});
  add_errors(text, curve, measured.fitted, false);
  add_errors(text, curve, measured.held_out, true);
  std::ranges::sort(text.errors, {}, &SizeError::bytes);
  return text;
}

void print_calibration(Calibration& calibration, bool all_sizes) {
  for (NamedCurve const& named : named_curves(calibration.machine)) {
    auto const measured = std::ranges::find(calibration.curves, named.name, &CalibratedCurve::name);
    if (!*named.curve || measured == calibration.curves.end()) continue;
    FittedCurveText const text = describe(*measured, (*named.curve)->curve);
    fmt::print("{}{}", curve_lines(text), all_sizes ? curve_error_lines(text) : "");
  }
  if (calibration.machine.node_barrier)
    fmt::print("# node barrier\n    {:.3f} us\n", *calibration.machine.node_barrier * 1e6);
  if (int const ports = calibration.machine.node_ports; ports > 0)
    fmt::print("# the ranks of a node share {} to other nodes\n", plural(ports, "port"));
  for (Link const link : {Link::intra, Link::inter})
    if (auto const share = calibration.machine.overlap[static_cast<std::size_t>(link)])
      fmt::print("# messages {} hide {:.0f} % of the work that ranks do meanwhile\n", to_string(link), 100 * *share);
}

/// Of one rank in fp32, while all measure; not of ranks that share cores or a device, which get in each other's way.
void measure_compute(MeasuredMachine& machine, RankContext& context, Placement const& placement) {
  auto const mine = static_cast<std::size_t>(context.communicator.rank());
  std::int64_t const neighbours = ranks_beside(placement.machines, context.communicator.rank());
  bool const on_device = !placement.devices[mine].empty();
  GemmChoice const products = resolve_gemm_provider(GemmProvider::automatic);
  std::int64_t const threads = neighbours * std::max(context.exec.concurrency(), library_threads(products));
  bool const shares = on_device ? neighbours > devices() : threads > sysconf(_SC_NPROCESSORS_ONLN);
  std::int64_t const any = shares ? 1 : 0;
  if (control_all_reduce(context.exec, context.communicator, Operation::max, any) > 0) {
    return;
  }
  PeakInfo const all = sum_peaks(context, products, {}, static_cast<std::size_t>(on_device ? 1 : neighbours));
  auto const ranks = static_cast<double>(context.communicator.size());
  machine.gemm_flops_per_second = all.gemm_flops_per_second / ranks;
  machine.bandwidth_bytes_per_second = all.bandwidth_bytes_per_second / ranks;
}

void print_compute(MeasuredMachine const& machine) {
  if (!machine.gemm_flops_per_second) {
    fmt::print("# no rates of matrix products and memory: ranks share cores or a device\n");
    return;
  }
  fmt::print("# a rank computes {:.1f} GFLOP/s in matrix products of fp32 and moves {:.1f} GB/s\n",
             *machine.gemm_flops_per_second * 1e-9, *machine.bandwidth_bytes_per_second * 1e-9);
}

/// What is measured for a deck.
struct PartsOfDeck {
  ResolvedRun training; ///< that is timed
  std::map<std::string, std::string> conditions;
  OffloadMeasurement offload;
};

OffloadMeasurement offload_of(ResolvedRun const& run) {
  ParallelConfig const& parallel = run.config.parallel;
  ShardPlan const plan = plan_memory(run, 0).parallel;
  return {.files = parallel.offload_files(),
          .request_bytes = static_cast<std::uint64_t>(parallel.offload_chunk_bytes),
          .optimizer = run.config.optimizer,
          .types = plan.layout.types,
          .gradients = plan.reductions.storage};
}

/// Collective. \throws Error (exit 69) if the training does not fit into memory
PartsOfDeck plan_parts(DeckInput const& input, RankContext& context, Placement const& placement,
                       DeviceFindings const& found) {
  PartsOfDeck parts;
  Deck deck;
  ResolvedRun asked;
  Communicator& communicator = context.communicator;
  RunConfig config;
  collectively(communicator, [&] {
    deck = read_deck(input);
    config = resolve(deck, communicator.size());
  });
  use_chosen_buffers(communicator, config.comm.buffers, context.exec, found);
  MachineChoices machine{.buffers = communicator.buffers()};
  std::int64_t const neighbours = ranks_beside(placement.machines, communicator.rank());
  collectively(communicator, [&] { asked = resolve_run(config, communicator.topology(), machine); });
  machine.gemm = find_fastest_gemms(context, neighbours, asked).choice;
  collectively(communicator, [&] {
    parts = {resolve_run(measured_training(asked.config), Topology::one_node(1), machine),
             part_conditions(asked.config), offload_of(asked)};
    auto const ranks = static_cast<std::uint64_t>(neighbours);
    std::uint64_t const needed = ranks * plan_run(parts.training, 0).memory_bytes().total();
    std::uint64_t const present = host_reaches_memory
                                      ? describe_machine().memory_bytes
                                      : current_device().memory_bytes * std::min<std::uint64_t>(ranks, devices());
    if (needed > present)
      throw Error(fmt::format("does not fit: {} blocks of {} on {} ranks need {}, and there are {}",
                              parts.training.config.model.layers, deck_label(deck), ranks, mebibytes(needed),
                              mebibytes(present)),
                  ExitCode::does_not_fit);
  });
  return parts;
}

MeasuredParts measure(PartsOfDeck const& parts, RankContext& context) {
  MemoryLedger ledger;
  GemmChoice const products = parts.training.gemm;
  return {parts.conditions, std::max(context.exec.concurrency(), library_threads(products)),
          parts.training.config.model.layers,
          measure_parts(context.exec, context.communicator, ledger, parts.training)};
}

/// \return why there are no rates: a node may have no room for a file. Then all ranks have none.
std::string measure_copies_and_file(MeasuredMachine& machine, RankContext& context, MemoryLedger& ledger,
                                    std::optional<PartsOfDeck> const& parts) {
  try {
    MeasuredOffload const measured =
        measure_offload(context.exec, context.communicator, ledger, parts ? parts->offload : OffloadMeasurement());
    machine.offload = measured.rates;
    machine.files = measured.files;
    return "";
  } catch (CollectiveError const& error) {
    return error.what();
  }
}

void print_offload(MeasuredMachine const& machine, std::string const& why_not) {
  if (!machine.offload) return fmt::print("# no rates of copies and files: {}\n", why_not);
  OffloadRates const& rates = *machine.offload;
  fmt::print("# a rank copies {:.1f} GB/s between kernels and host; in an update of a file's state {:.1f} GB/s, reads "
             "{:.2f} GB/s\n"
             "# of the file, writes {:.2f} GB/s and updates an element in {:.3f} ns,\n"
             "# {}\n",
             1e-9 * rates.copy, 1e-9 * rates.copy_beside_file, 1e-9 * rates.read, 1e-9 * rates.write,
             1e9 * rates.update_of_element, to_string(*machine.files));
}

void print_parts(MeasuredParts const& parts) {
  fmt::print("# parts of {} of channels {}, {} samples of {} tokens, ms\n", plural(parts.layers, "block"),
             parts.conditions.at("channels"), parts.conditions.at("micro"), parts.conditions.at("sequence"));
  for (auto const& [kind, part] : parts.times.parts)
    fmt::print("    {:<10} forward {:>10.3f}   backward {:>10.3f}   backward, adding {:>10.3f}\n", to_string(kind),
               1e3 * part.forward, 1e3 * part.backward, 1e3 * part.backward_adding);
  fmt::print("    {:<10} {:>18.3f}   load {:>14.3f}\n", "loss", 1e3 * parts.times.loss, 1e3 * parts.times.load);
  fmt::print("# ns per element: update {:.3f}, norm {:.3f}, copy {:.3f}, addition {:.3f}\n",
             1e9 * parts.times.update_of_element, 1e9 * parts.times.norm_of_element, 1e9 * parts.times.copy_of_element,
             1e9 * parts.times.add_of_element);
}

} // namespace

int calibrate(CalibrateArguments const& arguments, RankContext& context) {
  std::optional<Communicator> communicator;
  CalibrationOptions options;
  BuffersChoice buffers = {};
  bool const first = context.communicator.rank() == 0;
  Placement const placement = placement_of(context.communicator);
  DeviceFindings const found = prove_device_memory(context.communicator, context.exec);
  collectively(context.communicator, [&] {
    communicator.emplace(Communicator::world(emulated_nodes(arguments.emulated_nodes)));
    options.max_bytes = parse_size("-e", arguments.max_bytes);
    TRAINSTONE_REQUIRE_INPUT(options.max_bytes >= 4096, "-e {} is too little for a fit; at least 4K",
                             arguments.max_bytes);
    buffers = choose_measured_buffers(arguments.buffers, host_reaches_memory, found);
    if (first) require_writable(arguments.output);
  });
  std::optional<PartsOfDeck> parts;
  if (!arguments.deck.path.empty()) parts = plan_parts(arguments.deck, context, placement, found);
  communicator->use_buffers(buffers.messages, context.exec);
  communicator->use_neighbours_memory(found.neighbours.proved);
  options.shared_memory = buffers.shared_memory;
  options.node_ports = emulated_nodes(arguments.emulated_nodes) == 0; // emulated ones share cores
  MeasuredMachine machine;
  measure_compute(machine, context, placement);
  if (parts) machine.parts = measure(*parts, context);
  MemoryLedger ledger;
  std::string const no_offload = measure_copies_and_file(machine, context, ledger, parts);
  Calibration calibration = calibrate_communication(context.exec, *communicator, ledger, options);
  if (!first) return 0;

  machine.fit = calibration.machine;
  machine.provenance = describe_here();
  machine.provenance.mpi = context.mpi.implementation();
  machine.provenance.code = fmt::format("{} git {}", TRAINSTONE_VERSION, git_commit);
  machine.provenance.ranks = communicator->size();
  machine.provenance.nodes = communicator->topology().nodes();
  machine.provenance.buffers = communicator->buffers();
  print_calibration(calibration, arguments.all_sizes);
  print_compute(machine);
  print_offload(machine, no_offload);
  if (machine.parts) print_parts(*machine.parts);
  make_folder_of(arguments.output);
  write_machine_file(arguments.output, machine);
  fmt::print("{}\n", machine_line(arguments.output, machine));
  return 0;
}

} // namespace trainstone
