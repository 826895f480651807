#include "train/plan/resolved_run.hpp"

#include "kernels/common/config.hpp"

namespace trainstone {

namespace {

GemmChoice gemm_choice(KernelConfig const& kernels, MachineChoices const& machine) {
  if (kernels.gemm != gemm_measured) return parse_gemm_provider(kernels.gemm);
  return machine.gemm ? *machine.gemm : GemmChoice(GemmProvider::automatic);
}

} // namespace

ResolvedRun resolve_run(RunConfig const& config, Topology const& topology, MachineChoices const& machine) {
  ResolvedRun run{.config = config,
                  .topology = topology,
                  .mesh = mesh_of(config.parallel, topology.ranks()),
                  .buffers = machine.buffers ? *machine.buffers : resolve_buffers(config.comm.buffers),
                  .gemm = gemm_choice(config.kernels, machine)};
  run.config.comm.buffers = to_string(run.buffers);
  for (auto const& [key, algorithm] : machine.algorithms)
    run.config.comm = with_algorithm(run.config.comm, key, algorithm);
  return run;
}

} // namespace trainstone
