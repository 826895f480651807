#include "train/plan/program_proof.hpp"

#include "core/error.hpp"
#include "parallel/program/step_programs.hpp"
#include "parallel/program/step_simulator.hpp"
#include "train/plan/run_plan.hpp"

namespace trainstone {

Index played_instructions(StepProgram const& program, Index ranks) {
  Index count = 0;
  for (std::vector<Segment> const* segments : {&program.step, &program.update, &program.evaluation})
    for (Segment const& segment : *segments) count += segment.times * std::ssize(segment.instructions);
  return ranks * count;
}

bool prove_programs(ResolvedRun const& run) {
  ParameterTable const table(run.config.model, run.mesh.data());
  std::vector<ShardPlan> plans{plan_shards(run, table, 0)};
  std::vector<StepProgram> programs{make_step_program(plans.front())};
  Rank const ranks = run.topology.ranks();
  if (played_instructions(programs.front(), ranks) > most_played_instructions) return false;
  for (Rank rank = 1; rank < ranks; ++rank) {
    plans.push_back(plan_shards(run, table, rank));
    programs.push_back(make_step_program(plans.back()));
  }
  require_proved(plans, programs);
  return true;
}

void require_proved(std::vector<ShardPlan> const& plans, std::vector<StepProgram> const& programs) {
  std::optional<StepFinding> const found = find_step_defect(plans, programs);
  if (!found) return;
  throw Error(fmt::format("the step program of rank {} is wrong, which is an error of this program: {}: {}",
                          found->rank, to_string(found->defect), found->message));
}

} // namespace trainstone
