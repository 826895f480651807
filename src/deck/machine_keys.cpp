#include "comm/algorithms/registry.hpp"
#include "deck/key_builders.hpp"
#include "deck/key_sections.hpp"
#include "train/injected_delay.hpp"

#include <algorithm>

namespace trainstone::Impl {

namespace {

/// A key that names an algorithm. \param[in] meaning  "algorithm of all-gathers; auto: ring"
Key algorithm(char const* name, std::string const& meaning) {
  auto const found = std::ranges::find(algorithm_keys, std::string_view(name), &AlgorithmKey::name);
  std::vector<std::string> names = algorithm_names(found->collective);
  names.emplace_back(algorithm_measured);
  return choice(name, &RunConfig::comm, found->member, names,
                meaning +
                    "; measured: the fastest one, tried at the start of a run with the training's heaviest message, "
                    "and printed; estimate and verify take auto for it; not with parallel.reduction = \"ordered\"");
}

std::vector<std::string> delay_place_names() { return {delay_places.begin(), delay_places.end()}; }
std::vector<std::string> slow_kernel_names() { return {slow_kernels.begin(), slow_kernels.end()}; }

std::vector<std::string> gemm_names() {
  std::vector<std::string> names(gemm_provider_names.begin(), gemm_provider_names.end());
  names.emplace_back(gemm_measured);
  return names;
}

std::vector<std::string> attention_names() {
  std::vector<std::string> names{std::string(attention_automatic)};
  names.insert(names.end(), attention_provider_names.begin(), attention_provider_names.end());
  return names;
}

std::vector<Key> communication_keys() {
  return {
      algorithm("comm.allreduce",
                "algorithm of all-reduces; auto: ring, or ordered for parallel.reduction = \"ordered\""),
      algorithm(
          "comm.tensor_allreduce",
          "algorithm of the sums that tensor ranks make of what they compute; with parallel.sequence of the small "
          "ones alone, for the loss and for gradients of norms; auto: ring, or ordered for parallel.reduction = "
          "\"ordered\""),
      algorithm("comm.tensor_reduce_scatter",
                "algorithm of the sums that tensor ranks with parallel.sequence make of what they compute; auto: ring, "
                "or ordered for parallel.reduction = \"ordered\""),
      algorithm("comm.tensor_all_gather",
                "algorithm by which tensor ranks with parallel.sequence gather rows; auto: ring"),
      algorithm("comm.reduce_scatter",
                "algorithm of reduce-scatters; auto: ring, or ordered for parallel.reduction = \"ordered\""),
      algorithm("comm.all_gather", "algorithm of all-gathers; auto: ring"),
      algorithm("comm.reduce", "algorithm of reduces; auto: binomial, linear for strategy naive, or ordered for "
                               "parallel.reduction = \"ordered\""),
      algorithm("comm.broadcast", "algorithm of broadcasts; auto: binomial, or linear for strategy naive"),
      choice(
          "comm.buffers", &RunConfig::comm, &CommConfig::buffers, {"auto", "host", "staged", "device"},
          "memory that is passed to MPI; host, device: the memory that kernels work on; staged: copies of the "
          "messages in pinned host memory (on hosts to exercise the code of devices); auto: host if kernels run on "
          "the host, else device if a proof at the start succeeds, else staged; algorithms of shared memory give MPI "
          "nothing inside a node"),
      number("comm.expected_ranks", &RunConfig::comm, &CommConfig::expected_ranks, "ranks", up_to(million),
             "the run refuses any other number of ranks; 0 = any number"),
      key("comm.check_order", &RunConfig::comm, &CommConfig::check_order,
          "compare every call of a collective between all ranks, so that a difference is an error instead of a "
          "hang; slower"),
      number("comm.emulated_nodes", &RunConfig::comm, &CommConfig::emulated_nodes, "nodes", up_to(million),
             "treat the ranks as if they sat on this number of nodes, in blocks; 0 = real nodes"),
      quantity("comm.emulated_network.latency", &RunConfig::comm, &CommConfig::emulated_latency, Dimension::time,
               up_to(60),
               "latency of every message; a rank sends one message after the other, and receives so; 0 s = real "
               "network"),
      quantity("comm.emulated_network.bandwidth", &RunConfig::comm, &CommConfig::emulated_bandwidth, Dimension::rate,
               {}, "bandwidth of every rank's messages; 0 B/s = real network"),
      key("comm.emulated_network.node_port", &RunConfig::comm, &CommConfig::emulated_node_port,
          "the ranks of a node share one connection to other nodes, which sends one message after the other, and "
          "receives so"),
      quantity("comm.emulated_network.inside.latency", &RunConfig::comm, &CommConfig::emulated_inside_latency,
               Dimension::time, up_to(60),
               "latency of messages inside a node; without any value of comm.emulated_network.inside, the values of "
               "other messages hold there"),
      quantity("comm.emulated_network.inside.bandwidth", &RunConfig::comm, &CommConfig::emulated_inside_bandwidth,
               Dimension::rate, {}, "bandwidth of messages inside a node, of every rank"),
  };
}

std::vector<Key> kernel_and_bench_keys() {
  return {
      choice("kernels.gemm", &RunConfig::kernels, &KernelConfig::gemm, gemm_names(),
             "provider of matrix products; auto: the first of a fixed order that was built; measured: for every "
             "product the fastest provider on this machine, which the run finds at its start, keeps in the user's "
             "cache folder and prints; not with parallel.reduction = \"ordered\""),
      choice(
          "kernels.attention", &RunConfig::kernels, &KernelConfig::attention, attention_names(),
          "who computes attention of model.attention = \"flash\"; auto: the first of a fixed order that was built "
          "and that takes the size of a head and precision.storage; tensor_cores: on NVIDIA GPUs, 16 bits, heads of "
          "64, 80, 96 or 128 channels; cudnn: NVIDIA's library where it is built in, 16 bits, heads of 8, 16, .. 128 "
          "channels, without dropout; wgmma: as tensor_cores, on GPUs of compute capability 9.0 alone; cudnn and wgmma "
          "are never taken by auto"),
      key("kernels.graphs", &RunConfig::kernels, &KernelConfig::graphs,
          "start the kernels between two waits by one call, from the second step on: CUDA graphs, for small models; on "
          "hosts without use; not with model.dropout; the bits stay"),
      number("bench.warmup_steps", &RunConfig::bench, &BenchConfig::warmup_steps, "steps", up_to(trillion),
             "steps that are trained but not measured"),
      number("bench.window", &RunConfig::bench, &BenchConfig::window, "steps", up_to(trillion),
             "steps that are measured after the warm-up; 0 = all"),
      key("bench.kernels", &RunConfig::bench, &BenchConfig::kernels,
          "print a table of kernels, each timed on its own, over the measured steps; devices then run one kernel at "
          "a time"),
      key("bench.pipeline", &RunConfig::bench, &BenchConfig::pipeline,
          "of parallel.pipeline above 1: measure the idle time of the stages in the measured steps, each of which then "
          "begins with a barrier of the pipeline's ranks and waits for the kernels of each instruction"),
  };
}

std::vector<Key> fault_keys() {
  return {
      number("faults.nan.step", &RunConfig::faults, &FaultConfig::nan_step, "", up_to(trillion),
             "test: the step, from 1, whose forward pass is poisoned; 0 = none"),
      key("faults.nan.unit", &RunConfig::faults, &FaultConfig::nan_part,
          "test: the part whose output becomes NaN: \"embed\", \"attention 0\", \"mlp 0\", ..., \"head\""),
      number("faults.overflow.step", &RunConfig::faults, &FaultConfig::overflow_step, "", up_to(trillion),
             "test: the step, from 1, whose gradients overflow on one rank; 0 = none"),
      number("faults.overflow.rank", &RunConfig::faults, &FaultConfig::overflow_rank, "", up_to(million),
             "test: the rank whose gradients overflow"),
      choice("faults.delay.where", &RunConfig::faults, &FaultConfig::delay_where, delay_place_names(),
             "test: the place that waits: kernels of the model and the update, or one kind of step of collectives; "
             "\"\" = none"),
      quantity("faults.delay.time", &RunConfig::faults, &FaultConfig::delay_time, Dimension::time, up_to(60),
               "test: how long it waits"),
      number("faults.delay.rank", &RunConfig::faults, &FaultConfig::delay_rank, "", {-1, million},
             "test: the only rank that waits; -1 = all wait"),
      number("faults.delay.every", &RunConfig::faults, &FaultConfig::delay_every, "times", {1, trillion},
             "test: 1 = every time, 3 = every third time"),
      choice("faults.slow.kernel", &RunConfig::faults, &FaultConfig::slow_kernel, slow_kernel_names(),
             "test: the kernels that take longer, on all ranks; \"\" = none"),
      number("faults.slow.factor", &RunConfig::faults, &FaultConfig::slow_factor, "", {1, 1000},
             "test: these kernels take this number of times as long"),
      key("faults.extra_message", &RunConfig::faults, &FaultConfig::extra_message,
          "test: every step adds up one more number over all ranks, which no plan knows"),
      number("faults.order.step", &RunConfig::faults, &FaultConfig::order_step, "", up_to(trillion),
             "test: the step, from 1, in which one rank calls another collective than the others; needs "
             "comm.check_order; 0 = none"),
      number("faults.order.rank", &RunConfig::faults, &FaultConfig::order_rank, "", {-1, million},
             "test: the rank that calls another collective; -1 = none"),
      quantity("faults.pace.forward", &RunConfig::faults, &FaultConfig::pace_forward, Dimension::time, up_to(60),
               "test: the least time of a block's forward for a micro-batch; stages of a pipeline then sleep and need "
               "no core each; 0 s = its own time"),
      quantity("faults.pace.backward", &RunConfig::faults, &FaultConfig::pace_backward, Dimension::time, up_to(60),
               "test: the least time of a block's backward for a micro-batch; 0 s = its own time"),
      number("faults.straggler.rank", &RunConfig::faults, &FaultConfig::straggler_rank, "", {-1, million},
             "test: the rank whose times of faults.pace are longer; -1 = none"),
      number("faults.straggler.factor", &RunConfig::faults, &FaultConfig::straggler_factor, "", {1, 1000},
             "test: factor on these times"),
      number("faults.straggler.sigma", &RunConfig::faults, &FaultConfig::straggler_sigma, "", {0, 4},
             "test: each rank multiplies its times of faults.pace by a random factor of each step, log-normal with "
             "this deviation of the logarithm and mean 1; 0 = none"),
      number("faults.straggler.seed", &RunConfig::faults, &FaultConfig::straggler_seed, "", up_to(trillion),
             "test: seed of these factors"),
  };
}

std::vector<Key> file_keys() {
  return {
      key("checkpoint.dir", &RunConfig::checkpoint, &CheckpointConfig::folder,
          "folder for checkpoints of this training alone; relative to the working directory; \"\" = no checkpoints"),
      quantity("checkpoint.every", &RunConfig::checkpoint, &CheckpointConfig::every, Dimension::time, {},
               "time between checkpoints: the first step that ends later than this writes the next one; 0 s = not "
               "by time"),
      number("checkpoint.every_steps", &RunConfig::checkpoint, &CheckpointConfig::every_steps, "steps", up_to(trillion),
             "number of steps between checkpoints, also beside checkpoint.every; 0 = not by steps"),
      number("checkpoint.keep", &RunConfig::checkpoint, &CheckpointConfig::keep, "checkpoints", {1, million},
             "the newest ones stay, older ones are removed"),
      key("checkpoint.on_signal", &RunConfig::checkpoint, &CheckpointConfig::on_signal,
          "SIGUSR1, SIGUSR2 or SIGTERM to any rank stops all ranks after the same step with a checkpoint, exit 75"),
      key("checkpoint.resume", &RunConfig::checkpoint, &CheckpointConfig::resume,
          "auto: go on from the newest usable checkpoint in checkpoint.dir, if there is any; none: begin anew; or "
          "the folder of one checkpoint, relative to the working directory"),
      key("trace.file", &RunConfig::trace, &TraceConfig::file,
          "timeline of every rank in Chrome's trace format, for Perfetto; relative to the working directory; \"\" = "
          "none"),
      number("trace.events", &RunConfig::trace, &TraceConfig::events, "events", {1, billion},
             "the first ones that every rank keeps; their memory is predicted"),
  };
}

} // namespace

std::vector<Key> machine_keys() {
  return joined({communication_keys(), kernel_and_bench_keys(), fault_keys(), file_keys()});
}

} // namespace trainstone::Impl
