#include "train/plan/program_proof.hpp"

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_proof.hpp"
#include "parallel/plan/pipeline_plan.hpp"
#include "parallel/program/step_programs.hpp"
#include "parallel/program/step_simulator.hpp"
#include "train/plan/run_plan.hpp"

#include <algorithm>

namespace trainstone {

Index played_instructions(StepProgram const& program, Index ranks) {
  Index count = 0;
  for (std::vector<Segment> const* segments : {&program.step, &program.update, &program.evaluation})
    for (Segment const& segment : *segments) count += segment.times * std::ssize(segment.instructions);
  return ranks * count;
}

namespace {

bool prove_if_few(ResolvedRun const& run) {
  Rank const ranks = run.topology.ranks();
  std::vector<ShardPlan> plans;
  std::vector<StepProgram> programs;
  for (Rank rank = 0; rank < ranks; ++rank) {
    ParameterTable const table = run.table_of(rank);
    plans.push_back(plan_shards(run, table, rank));
    programs.push_back(make_step_program(plans.back()));
    if (played_instructions(programs.back(), ranks) > most_played_instructions) return false;
  }
  require_proved(plans, programs);
  return true;
}

} // namespace

bool prove_programs(ResolvedRun const& run) {
  if (run.mesh.pipeline == 1) return prove_if_few(run);
  require_proved(training_pipeline(run.config.parallel, run.config.batch.accumulation));
  require_proved(evaluation_pipeline(run.config.parallel));
  if (prove_if_few(run)) return true;
  ResolvedRun shorter = run;
  shorter.config.batch.accumulation = std::min<Index>(run.config.batch.accumulation, run.mesh.pipeline);
  return prove_if_few(shorter);
}

void require_proved(std::vector<ShardPlan> const& plans, std::vector<StepProgram> const& programs) {
  std::optional<StepFinding> const found = find_step_defect(plans, programs);
  if (!found) return;
  throw Error(fmt::format("the step program of rank {} is wrong, which is an error of this program: {}: {}",
                          found->rank, to_string(found->defect), found->message));
}

} // namespace trainstone
