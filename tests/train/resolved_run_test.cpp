#include "train/plan/resolved_run.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

namespace {

GemmProvider usual() { return resolve_gemm_provider(GemmProvider::automatic); }
GemmShape const shape{7, 5, 3};

/// A choice that no rule makes: of one product only.
GemmChoice measured_choice() { return {usual(), {{shape, GemmProvider::kokkos}}}; }

} // namespace

TEST_CASE("a resolved run names the buffers and the algorithms that the machine has chosen", "[resolved]") {
  RunConfig config;
  config.comm.allreduce = "measured";
  config.comm.reduce_scatter = "measured";
  config.comm.all_gather = "ring";
  ResolvedRun const run = resolve_run(config, Topology::one_node(4),
                                      {.buffers = MessageBuffers::staged, .algorithms = {{"comm.allreduce", "tree"}}});
  CHECK(run.buffers == MessageBuffers::staged);
  CHECK(run.config.comm.buffers == "staged");
  CHECK(run.config.comm.allreduce == "tree");
  CHECK(run.config.comm.reduce_scatter == "measured"); // not used by the run, so not measured
  CHECK(run.config.comm.all_gather == "ring");
}

TEST_CASE("without choices of a machine a run follows the rules", "[resolved]") {
  ResolvedRun const run = resolve_run({}, Topology::one_node(2));
  CHECK(run.buffers == resolve_buffers("auto"));
  CHECK(run.config.comm.buffers == to_string(run.buffers));
  CHECK(run.gemm.providers() == std::vector{usual()});
}

TEST_CASE("measured products count only where the configuration asks for them", "[resolved]") {
  Topology const topology = Topology::one_node(1);
  RunConfig config;
  auto const provider = [&](std::string const& gemm, MachineChoices const& machine) {
    config.kernels.gemm = gemm;
    return resolve_run(config, topology, machine).gemm(shape);
  };
  CHECK(provider("measured", {.gemm = measured_choice()}) == GemmProvider::kokkos);
  CHECK(provider("measured", {}) == usual());
  CHECK(provider("auto", {.gemm = measured_choice()}) == usual());
  CHECK(provider("kokkos", {}) == GemmProvider::kokkos);
  CHECK_THROWS_AS(provider("no such", {}), InputError);
}

TEST_CASE("a run has the provider of attention that its build, types and heads lead to", "[resolved]") {
  Topology const topology = Topology::one_node(1);
  RunConfig config;
  config.model = {1, 2, 128, 8, 29};
  config.precision.recipe = RecipeName::mixed16;
  config.model_options.attention = AttentionKind::flash;
  auto const provider = [&](std::string const& name) {
    config.kernels.attention = name;
    return resolve_run(config, topology).options_of(0).attention_provider;
  };
  CHECK(provider("auto") == built_attention_providers().front());
  CHECK(provider("flash") == AttentionProvider::flash);
  CHECK_THROWS_AS(provider("no such"), InputError);
  if (built_attention_providers().front() == AttentionProvider::flash)
    CHECK_THROWS_AS(provider("tensor_cores"), InputError);
  config.precision.recipe = RecipeName::fp32;
  CHECK(provider("auto") == AttentionProvider::flash);
  CHECK_THROWS_AS(provider("tensor_cores"), InputError);
  config.model_options.attention = AttentionKind::materialized;
  CHECK(provider("tensor_cores") == AttentionProvider::flash); // not read
}

TEST_CASE("the mesh of a run covers its topology", "[resolved]") {
  RunConfig config;
  config.parallel = {.strategy = Strategy::hsdp, .shard_group = 2};
  ResolvedRun const run = resolve_run(config, Topology::block(8, 2));
  CHECK(run.topology.ranks() == 8);
  CHECK(run.topology.nodes() == 2);
  CHECK(run.mesh.shard == 2);
  CHECK(run.mesh.replica == 4);
}
