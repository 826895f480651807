#pragma once

// Stages of a pipeline for tests of the training state: which blocks they have, and their plans.

#include "train/plan/run_plan.hpp"

namespace trainstone::test {

/// Of so many stages, with as even numbers of blocks as possible.
inline ModelStage even_stage(GptConfig const& model, Index stage, Index stages) {
  Range const blocks = Partition::even(model.layers, static_cast<Rank>(stages)).range(static_cast<Rank>(stage));
  ModelStage here{stage == 0, {}, stage == stages - 1};
  for (Index block = blocks.begin; block < blocks.end; ++block) here.blocks.push_back(block);
  return here;
}

/// What a rank of a mesh with stages and tensor ranks holds.
struct StagePlan {
  StagePlan(ResolvedRun const& run, Rank rank)
      : table(run.config.model, run.mesh.data(),
              even_stage(run.config.model, run.mesh.index(Axis::pipeline, rank), run.mesh.pipeline),
              run.options_of(rank).slices),
        shards(plan_shards(run, table, rank)) {}

  ParameterTable table;
  ShardPlan shards;
};

} // namespace trainstone::test
