#include "run_text.hpp"

#include "core/plural.hpp"
#include "core/quantity.hpp"
#include "git_version.hpp"
#include "report/bubble_section.hpp"
#include "report/output.hpp"
#include "report/servers_section.hpp"
#include "report/stop_section.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <iterator>
#include <numeric>
#include <vector>

namespace trainstone {

namespace {

RunHeader make_header(PreparedRun const& run, RankContext const& context) {
  RunHeader header;
  header.version = TRAINSTONE_VERSION;
  header.git = git_commit;
  header.dirty = git_dirty;
  header.kokkos = kokkos_description();
  header.mpi = context.mpi.implementation();
  header.buffers = describe_buffers(context.communicator);
  if (run.devices_per_node > 0)
    header.buffers += fmt::format(", {} on {} per node", plural(std::ssize(run.neighbours), "rank"),
                                  plural(run.devices_per_node, "device"));
  header.ranks = context.communicator.size();
  header.nodes = context.communicator.nodes().count;
  header.emulated_nodes = run.config().comm.emulated_nodes > 0;
  header.emulated_network = run.config().comm.emulated_network().is_slow();
  header.deck = deck_label(run.deck);
  return header;
}

/// What is said of a run whose only golden loss is that of its first step.
void print_first_step_note(PreparedRun const& run) {
  if (!run.first_step) return;
  if (!run.compares_first_step())
    fmt::print("note: the golden first step is not compared: its bounds are for fp32 from the seed, with products that "
               "round nothing\n");
  else if (!is_referenced(run.judgement.name, false, run.compares_first_update()))
    fmt::print("note: only the first step has a golden {}, which makes no run of class {} VALID\n",
               run.compares_first_update() ? "update" : "loss", run.judgement.name);
}

/// "note: a block takes at least 20 ms forward and 40 ms backward, on rank 1 2 times as long"
std::string pace_line(FaultConfig const& faults) {
  auto const time = [](double seconds) { return to_string(Quantity{Dimension::time, seconds}); };
  std::string line = fmt::format("note: a block takes at least {} forward and {} backward for a micro-batch",
                                 time(faults.pace_forward), time(faults.pace_backward));
  if (faults.straggler_rank >= 0)
    line += fmt::format(", on rank {} {:g} times as long", faults.straggler_rank, faults.straggler_factor);
  if (faults.straggler_sigma > 0)
    line += fmt::format(", times a random factor of each rank and step (sigma {:g}, seed {})", faults.straggler_sigma,
                        faults.straggler_seed);
  return line;
}

std::vector<Rank> neighbours(Rank first, Rank count) {
  std::vector<Rank> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// "tensor ranks are neighbours: 4 groups of 2, each on one node", or how many groups span nodes. Of a grid "2 groups
/// of 4 = 2 x 2".
std::string tensor_groups_line(ResolvedRun const& run) {
  Rank const size = run.mesh.sharers(), groups = run.topology.ranks() / size;
  Rank spanning = 0;
  for (Rank first = 0; first < run.topology.ranks(); first += size)
    spanning += run.topology.of(neighbours(first, size)).nodes() > 1 ? 1 : 0;
  std::string const grid = run.mesh.features > 1 ? fmt::format(" = {} x {}", run.mesh.tensor, run.mesh.features) : "";
  std::string const line = fmt::format("tensor ranks are neighbours: {} of {}{}", plural(groups, "group"), size, grid);
  if (spanning == 0) return line + (groups > 1 ? ", each on one node" : " on one node");
  return fmt::format("{}; note: {} span nodes, and what they bring together crosses the network", line,
                     spanning == groups ? "all" : std::to_string(spanning));
}

} // namespace

void print_start(PreparedRun const& run, RankContext const& context, WorkAmounts const& predicted) {
  fmt::print("{}\n{}\n{}\n", header_line(make_header(run, context)), memory_line(predicted.memory_bytes),
             work_line(predicted.sent_bytes, predicted.messages, predicted.flops, run.one_worker ? "push" : "step"));
  if (run.places.size() > 1) fmt::print("{}", rank_map_lines(run.places));
  if (run.resolved.mesh.shares_layers()) fmt::print("{}\n", tensor_groups_line(run.resolved));
  for (std::string const& departure : run.judgement.departures)
    fmt::print("note: class custom, not {}: {}\n", run.config().benchmark_class.name, departure);
  print_first_step_note(run);
  if (std::string const sharing = shared_processors(run, context.exec); !sharing.empty())
    fmt::print("note: {}: what the machine could do is not measured\n", sharing);
  if (run.plan->storage().values != Storage::fp32)
    fmt::print("note: precision {} in {}, gemm {}, attention {}\n", to_string(run.config().precision.recipe),
               to_string(run.plan->storage().values), describe_gemm(run.plan->gemm, run.plan->storage().values),
               describe_attention(run.config().model_options));
  if (run.config().comm.emulated_network().is_slow()) fmt::print("{}\n", network_line(run.config().comm));
  if (FaultConfig const& faults = run.config().faults; faults.delay_time > 0)
    fmt::print("note: a delay is injected: {} at \"{}\"\n", to_string(Quantity{Dimension::time, faults.delay_time}),
               faults.delay_where);
  if (FaultConfig const& faults = run.config().faults; faults.slow_factor > 1)
    fmt::print("note: kernels are slowed down: {} takes {} times as long\n", faults.slow_kernel, faults.slow_factor);
  if (FaultConfig const& faults = run.config().faults; faults.has_pace()) fmt::print("{}\n", pace_line(faults));
  if (run.config().faults.extra_message) fmt::print("note: every step sends one sum more than planned\n");
  if (run.config().bench.pipeline)
    fmt::print(
        "note: the pipeline is measured: a measured step begins with a barrier, and instructions are waited for\n");
  if (run.config().comm.check_order) fmt::print("note: the order of collectives is checked, which takes time\n");
  std::fflush(stdout);
  for (std::string const& note : run.notes) fmt::print("note: {}\n", note);
}

void print_end(Result const& result, std::string const& json_path) {
  if (!result.kernels.empty()) {
    auto const ranks = static_cast<double>(result.topology.ranks);
    fmt::print("{}", kernel_lines(result.kernels, result.peaks.gemm_flops_per_second / ranks,
                                  result.peaks.bandwidth_bytes_per_second / ranks));
  }
  if (result.servers) fmt::print("{}", servers_lines(*result.servers));
  if (result.pipeline) fmt::print("{}", bubble_lines(*result.pipeline));
  if (result.metrics.contains("floor_seconds"))
    fmt::print("{}\n", floor_line(result.metrics.at("step_seconds_median"), result.metrics.at("floor_seconds"),
                                  result.peaks.gemm_flops_per_second, result.peaks.bandwidth_bytes_per_second));
  if (auto const cost = cost_text(result)) fmt::print("to the held-out loss of data.stop_loss: {}\n", *cost);
  CheckpointInfo const& checkpoints = result.checkpoints;
  if (checkpoints.written > 0)
    fmt::print("{} written in {:.2f} s, the last one is {}\n", plural(checkpoints.written, "checkpoint"),
               checkpoints.seconds, checkpoints.last);
  if (result.energy) fmt::print("{}\n", energy_line(*result.energy));
  if (result.outcome != Outcome::stopped) fmt::print("{}", verification_lines(result.checks));
  if (result.tokens_per_second)
    fmt::print("{}", rate_lines(result.outcome, *result.tokens_per_second, result.topology.ranks));
  else
    fmt::print("note: no rate: no step after the warm-up was measured\n");
  bool const is_local = result.golden && !result.golden->released;
  fmt::print("{}\n", result_line(result.outcome, result.benchmark_class.name, is_local, json_path));
}

} // namespace trainstone
