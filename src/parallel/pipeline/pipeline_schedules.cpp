#include "parallel/pipeline/pipeline_schedules.hpp"

#include "core/error.hpp"
#include "core/plural.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace trainstone {

namespace {

/// The first operations of `forwards`, then pairs of a forward and a backward, then the remaining backwards.
StageOrder one_forward_one_backward(StageOrder const& forwards, StageOrder const& backwards, Index warm_up) {
  auto const first = static_cast<std::size_t>(std::min<Index>(warm_up, std::ssize(forwards)));
  StageOrder order(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(first));
  for (std::size_t j = 0; first + j < forwards.size(); ++j) {
    order.push_back(forwards[first + j]);
    order.push_back(backwards[j]);
  }
  order.insert(order.end(), backwards.end() - static_cast<std::ptrdiff_t>(first), backwards.end());
  return order;
}

StageOrder all_of(ChunkAct act, Index micro_batches) {
  StageOrder order;
  for (Index j = 0; j < micro_batches; ++j) order.push_back({act, j});
  return order;
}

StageOrder naive(PipelineShape const& shape, Index) {
  StageOrder order;
  for (Index j = 0; j < shape.micro_batches; ++j) {
    order.push_back({ChunkAct::forward, j});
    order.push_back({ChunkAct::backward, j});
  }
  return order;
}

/// Source: GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism. There backward goes from the
/// last micro-batch to the first one; here it ascends, which takes the same time.
StageOrder gpipe(PipelineShape const& shape, Index) {
  StageOrder order = all_of(ChunkAct::forward, shape.micro_batches);
  StageOrder const backwards = all_of(ChunkAct::backward, shape.micro_batches);
  order.insert(order.end(), backwards.begin(), backwards.end());
  return order;
}

StageOrder warmed_up(PipelineShape const& shape, Index warm_up) {
  return one_forward_one_backward(all_of(ChunkAct::forward, shape.micro_batches),
                                  all_of(ChunkAct::backward, shape.micro_batches), warm_up);
}

/// Source: PipeDream: Generalized Pipeline Parallelism for DNN Training; with one update per step.
StageOrder one_f_one_b(PipelineShape const& shape, Index stage) { return warmed_up(shape, shape.stages - 1 - stage); }

/// Twice the warm-up of 1F1B, so that a message has the time of an operation in each direction.
StageOrder eager(PipelineShape const& shape, Index stage) { return warmed_up(shape, 2 * (shape.stages - 1 - stage)); }

/// Groups of `stages` micro-batches run through all chunks of a stage, forward from the first chunk, backward from the
/// last one. Source: Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM.
StageOrder interleaved(PipelineShape const& shape, Index stage) {
  StageOrder forwards, backwards;
  for (Index group = 0; group < shape.micro_batches; group += shape.stages)
    for (Index chunk = 0; chunk < shape.chunks; ++chunk)
      for (Index j = group; j < group + shape.stages; ++j) {
        forwards.push_back({ChunkAct::forward, j, chunk});
        backwards.push_back({ChunkAct::backward, j, shape.chunks - 1 - chunk});
      }
  Index const warm_up = 2 * (shape.stages - 1 - stage) + (shape.chunks - 1) * shape.stages;
  return one_forward_one_backward(forwards, backwards, warm_up);
}

/// 1F1B whose backward computes gradients of inputs. Gradients of parameters follow `stage` micro-batches later, and
/// fill the bubble at the end. Source: Zero Bubble Pipeline Parallelism.
StageOrder zero_bubble(PipelineShape const& shape, Index stage) {
  StageOrder order;
  for (ChunkOperation const& operation : one_f_one_b(shape, stage)) {
    order.push_back(operation);
    if (operation.act == ChunkAct::backward && operation.micro_batch >= stage)
      order.push_back({ChunkAct::weights, operation.micro_batch - stage});
  }
  for (Index j = std::max<Index>(0, shape.micro_batches - stage); j < shape.micro_batches; ++j)
    order.push_back({ChunkAct::weights, j});
  return order;
}

constexpr std::array schedules{
    PipelineSchedule{.name = "naive",
                     .meaning = "one stage computes at a time: a micro-batch goes forward and backward through all "
                                "stages before the next one begins",
                     .order = naive},
    PipelineSchedule{.name = "gpipe",
                     .meaning = "all forwards, then all backwards: stages keep the activations of all micro-batches",
                     .order = gpipe},
    PipelineSchedule{.name = "1f1b",
                     .meaning = "after a warm-up, one forward and one backward in turns: as fast as gpipe, and stage i "
                                "of p keeps at most p - i micro-batches",
                     .order = one_f_one_b},
    PipelineSchedule{.name = "1f1b-eager",
                     .meaning = "1f1b with twice the warm-up: hides messages, keeps about twice as many micro-batches",
                     .order = eager},
    PipelineSchedule{.name = "interleaved",
                     .meaning = "1f1b with several chunks of the model per stage: a smaller bubble, more messages",
                     .order = interleaved,
                     .has_chunks = true,
                     .needs_whole_groups = true},
    PipelineSchedule{.name = "zb-h1",
                     .meaning = "1f1b whose gradients of parameters are computed later and fill the bubble",
                     .order = zero_bubble,
                     .splits_backward = true},
};

/// "8 and 12": the multiples of `unit` on both sides of a number that is none.
std::string nearest_multiples(Index number, Index unit) {
  Index const below = number / unit * unit;
  return below == 0 ? fmt::format("the nearest is {}", unit)
                    : fmt::format("the nearest are {} and {}", below, below + unit);
}

std::vector<std::string_view> names_with_chunks() {
  std::vector<std::string_view> names;
  for (PipelineSchedule const& schedule : schedules)
    if (schedule.has_chunks) names.push_back(schedule.name);
  return names;
}

} // namespace

std::string_view to_string(ChunkAct act) {
  switch (act) {
  case ChunkAct::forward: return "forward";
  case ChunkAct::backward: return "backward";
  case ChunkAct::weights: return "weights";
  }
  return "unknown";
}

std::string to_string(ChunkOperation const& operation, Index chunks) {
  return fmt::format("{} {}{}", to_string(operation.act), operation.micro_batch,
                     chunks > 1 ? fmt::format(", chunk {}", operation.chunk) : "");
}

std::span<PipelineSchedule const> pipeline_schedules() { return schedules; }

std::string pipeline_schedule_names() {
  std::vector<std::string_view> names;
  for (PipelineSchedule const& schedule : schedules) names.push_back(schedule.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> training_schedules() {
  std::vector<std::string> names;
  for (PipelineSchedule const& schedule : schedules)
    if (!schedule.splits_backward) names.emplace_back(schedule.name);
  return names;
}

PipelineSchedule const& parse_pipeline_schedule(std::string_view name) {
  auto const* const found = std::ranges::find(schedules, name, &PipelineSchedule::name);
  TRAINSTONE_REQUIRE_INPUT(found != schedules.end(), "\"{}\" is no schedule of a pipeline, must be one of {}", name,
                           pipeline_schedule_names());
  return *found;
}

std::string shape_problem(PipelineSchedule const& schedule, PipelineShape const& shape) {
  auto const& [stages, micro_batches, chunks] = shape;
  if (stages < 1 || micro_batches < 1 || chunks < 1)
    return fmt::format("a pipeline has at least 1 stage, 1 micro-batch and 1 chunk; these are {}, {} and {}", stages,
                       micro_batches, chunks);
  if (chunks > 1 && !schedule.has_chunks)
    return fmt::format("{} has 1 chunk per stage, not {}; {} can have more", schedule.name, chunks,
                       fmt::join(names_with_chunks(), " and "));
  if (!schedule.needs_whole_groups) return "";
  if (stages == 1) return fmt::format("{} needs at least 2 stages, this pipeline has 1", schedule.name);
  if (micro_batches % stages != 0)
    return fmt::format("{} needs a multiple of the stages as number of micro-batches: {} is no multiple of {}; {}",
                       schedule.name, micro_batches, stages, nearest_multiples(micro_batches, stages));
  return "";
}

std::string blocks_problem(PipelineSchedule const& schedule, PipelineShape const& shape, Index blocks) {
  if (!schedule.has_chunks || blocks % shape.virtual_stages() == 0) return "";
  if (blocks % shape.stages != 0)
    return fmt::format("{} cuts all blocks into equal chunks: the number of blocks, {}, is no multiple of {}; {}",
                       schedule.name, blocks, plural(shape.stages, "stage"), nearest_multiples(blocks, shape.stages));
  std::vector<Index> legal;
  for (Index chunks = 1; chunks <= blocks / shape.stages; ++chunks)
    if (blocks / shape.stages % chunks == 0) legal.push_back(chunks);
  return fmt::format("{} cuts all blocks into equal chunks: the number of chunks per stage of {} on {} is {}, not {}",
                     schedule.name, plural(blocks, "block"), plural(shape.stages, "stage"), fmt::join(legal, " or "),
                     shape.chunks);
}

StageOrder pipeline_evaluation_order(PipelineShape const& shape) {
  StageOrder order;
  for (Index group = 0; group < shape.micro_batches; group += shape.stages)
    for (Index chunk = 0; chunk < shape.chunks; ++chunk)
      for (Index j = group; j < std::min(shape.micro_batches, group + shape.stages); ++j)
        order.push_back({ChunkAct::forward, j, chunk});
  return order;
}

std::vector<StageOrder> make_pipeline_order(PipelineSchedule const& schedule, PipelineShape const& shape) {
  std::string const problem = shape_problem(schedule, shape);
  TRAINSTONE_REQUIRE_INPUT(problem.empty(), "{}", problem);
  std::vector<StageOrder> orders;
  for (Index stage = 0; stage < shape.stages; ++stage) orders.push_back(schedule.order(shape, stage));
  return orders;
}

} // namespace trainstone
