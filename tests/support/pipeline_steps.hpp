#pragma once

// Plans and programs of all ranks of a pipeline, for tests of steps.

#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/pipeline_problems.hpp"
#include "parallel/program/step_programs.hpp"

#include <fmt/format.h>

#include <vector>

namespace trainstone::test {

struct PipelineCase {
  ParallelConfig parallel;
  Index data_ranks = 1;
  Index micro_batches = 4; ///< per rank
  Index layers = 4;
  GptOptions options = {};

  Rank ranks() const { return static_cast<Rank>(data_ranks * parallel.pipeline); }
  GptConfig model() const { return {.layers = layers, .heads = 1, .channels = 4, .context = 4, .vocab = 16}; }
  StreamShape stream() const { return {{2, 3}, 4}; }
  BlockCosts costs() const { return {.blocks = std::vector<double>(static_cast<std::size_t>(layers), 1), .head = 2}; }
  bool is_legal() const {
    return !find_stages_problem(parallel, ranks()) && !find_parallel_problem(parallel, {}, data_ranks, micro_batches) &&
           !find_pipeline_problem(parallel, ranks(), layers, micro_batches);
  }
};

inline std::vector<ShardPlan> plans_of(PipelineCase const& one) {
  std::vector<ModelStage> const stages = model_stages(one.parallel, one.costs(), one.micro_batches);
  Topology const topology = Topology::one_node(one.ranks());
  Mesh const mesh = mesh_of(one.parallel, one.ranks());
  std::vector<ShardPlan> plans;
  for (Rank rank = 0; rank < one.ranks(); ++rank) {
    ModelStage const& stage = stages[static_cast<std::size_t>(mesh.index(Axis::pipeline, rank))];
    ParameterTable const table(one.model(), mesh.data(), stage, {}, one.parallel.unit);
    plans.push_back(
        make_shard_plan(one.parallel, {}, {}, {}, table, topology, rank, one.micro_batches, one.options, one.stream()));
  }
  return plans;
}

inline std::vector<StepProgram> programs_of(std::vector<ShardPlan> const& plans) {
  std::vector<StepProgram> programs;
  for (ShardPlan const& plan : plans) programs.push_back(make_step_program(plan));
  return programs;
}

inline std::string to_string(PipelineCase const& one) {
  ParallelConfig const& parallel = one.parallel;
  return fmt::format("{} on {} stages x {} chunks, {} data ranks, {} micro-batches, {} blocks, unit {}, {} {} {}",
                     parallel.pipeline_schedule, parallel.pipeline, parallel.pipeline_chunks, one.data_ranks,
                     one.micro_batches, one.layers, parallel.unit, trainstone::to_string(parallel.strategy),
                     parallel.zero_stage, parallel.overlap ? "overlap" : "no overlap");
}

} // namespace trainstone::test
