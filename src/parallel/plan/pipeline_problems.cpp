#include "parallel/plan/pipeline_problems.hpp"

#include "core/error.hpp"
#include "core/plural.hpp"
#include "parallel/pipeline/pipeline_schedules.hpp"
#include "parallel/pipeline/pipeline_stages.hpp"
#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/strategies.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

using Found = std::optional<ConfigProblem>;

Found strategy_problem(ParallelConfig const& parallel) {
  if (Found found = find_sharing_problem(parallel, "parallel.pipeline", parallel.pipeline, "pipeline", "pipeline"))
    return found;
  if (parallel.reduction == ReductionMode::ordered &&
      !std::has_single_bit(static_cast<std::uint64_t>(parallel.pipeline)))
    return problem("parallel.pipeline",
                   "parallel.reduction = \"ordered\" needs a power of two of stages, not {}; nearest legal values: {}",
                   parallel.pipeline, nearest_powers_of_two(parallel.pipeline));
  return std::nullopt;
}

Found schedule_problem(ParallelConfig const& parallel, Index blocks, Index micro_batches) {
  PipelineSchedule const& schedule = parse_pipeline_schedule(parallel.pipeline_schedule);
  if (schedule.splits_backward)
    return problem("parallel.pipeline_schedule",
                   "parallel.pipeline_schedule = \"{}\" is there for explain: a training computes gradients of inputs "
                   "and parameters together; legal values: {}",
                   schedule.name, fmt::join(training_schedules(), ", "));
  PipelineShape const shape{parallel.pipeline, micro_batches, parallel.pipeline_chunks};
  bool const of_chunks = shape.chunks > 1;
  if (std::string const found = shape_problem(schedule, shape); !found.empty()) {
    if (of_chunks && !schedule.has_chunks)
      return problem("parallel.pipeline_chunks", "parallel.pipeline_schedule: {}", found);
    return problem("parallel.pipeline_schedule",
                   "parallel.pipeline_schedule: {}; batch.global or batch.accumulation sets their number", found);
  }
  if (std::string const found = blocks_problem(schedule, shape, blocks); of_chunks && !found.empty())
    return problem("parallel.pipeline_chunks", "parallel.pipeline_chunks: {}", found);
  if (granularity_of(parallel) == Granularity::step && parallel.reduce == ReduceWhen::each)
    return problem("parallel.reduce",
                   "parallel.granularity = \"step\" on the stages of a pipeline reduces once: legal value of "
                   "parallel.reduce: \"last\"");
  return std::nullopt;
}

/// The largest number of stages that divides the ranks and that so many blocks can fill.
Index nearest_stages(Index ranks, Index blocks) {
  Index stages = std::min(ranks, most_stages(blocks));
  while (ranks % stages != 0) --stages;
  return stages;
}

Found cut_problem(ParallelConfig const& parallel, Index ranks, Index blocks) {
  if (parallel.pipeline > most_stages(blocks))
    return problem("parallel.pipeline",
                   "parallel.pipeline = {} stages for {}: a stage between the first and the last one needs a block; "
                   "nearest legal value on {}: {}",
                   parallel.pipeline, plural(blocks, "block"), plural(ranks, "rank"), nearest_stages(ranks, blocks));
  bool const of_chunks = parse_pipeline_schedule(parallel.pipeline_schedule).has_chunks && parallel.pipeline_chunks > 1;
  if (of_chunks && parallel.stage_cut != StageCut::even)
    return problem("parallel.stages",
                   "parallel.stages: parallel.pipeline_chunks = {} cuts all blocks into equal chunks; legal value: "
                   "\"even\"",
                   parallel.pipeline_chunks);
  if (parallel.stage_cut != StageCut::listed) return std::nullopt;
  BlockCosts const costs{.blocks = std::vector<double>(static_cast<std::size_t>(blocks), 1)};
  try {
    cut_stages(parallel.stage_cut, parallel.stages, costs, parallel.pipeline, 1);
  } catch (InputError const& error) {
    return problem("parallel.stages", "parallel.stages: {}", error.what());
  }
  auto const between = std::span(parallel.stages).subspan(1, parallel.stages.size() - 2);
  if (std::ranges::find(between, 0) != between.end())
    return problem("parallel.stages",
                   "parallel.stages = [{}]: a stage between the first and the last one needs a block, for example [{}]",
                   fmt::join(parallel.stages, ", "), fmt::join(even_stages(blocks, parallel.pipeline), ", "));
  return std::nullopt;
}

} // namespace

std::optional<ConfigProblem> find_stages_problem(ParallelConfig const& parallel, Index ranks) {
  if (ranks % parallel.pipeline == 0) return std::nullopt;
  return problem("parallel.pipeline",
                 "parallel.pipeline = {} does not divide the {}; nearest legal values: {} stages, or ranks in "
                 "multiples of {}",
                 parallel.pipeline, plural(ranks, "rank"), nearest_divisors(ranks, parallel.pipeline),
                 parallel.pipeline);
}

std::optional<ConfigProblem> find_pipeline_problem(ParallelConfig const& parallel, Index ranks, Index blocks,
                                                   Index micro_batches) {
  if (parallel.pipeline == 1) return std::nullopt; // the other keys are not read
  if (Found found = strategy_problem(parallel)) return found;
  if (Found found = cut_problem(parallel, ranks, blocks)) return found;
  return schedule_problem(parallel, blocks, micro_batches);
}

} // namespace trainstone
