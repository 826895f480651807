#include "parallel/pipeline/pipeline_bound.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// What the bound reads of a stage. Double, because mean times need not be whole.
struct StageLoad {
  double first_forward = 0;  ///< of its first chunk
  double first_backward = 0; ///< of its first chunk
  double first_weights = 0;
  double chain = 0;   ///< forward and backward of one micro-batch, all chunks
  double weights = 0; ///< of one micro-batch, if apart
};

std::vector<StageLoad> loads_of(PipelineShape const& shape, bool splits_backward, PipelinePrices const& prices) {
  std::vector<StageLoad> loads;
  for (Index stage = 0; stage < shape.stages; ++stage) {
    auto const time = [&](StageAct act, Index chunk) {
      return static_cast<double>(prices.of(shape, splits_backward, act, stage, chunk));
    };
    StageLoad load{.first_forward = time(StageAct::forward, 0),
                   .first_backward = time(StageAct::backward, 0),
                   .first_weights = splits_backward ? time(StageAct::weights, 0) : 0};
    for (Index chunk = 0; chunk < shape.chunks; ++chunk) {
      load.chain += time(StageAct::forward, chunk) + time(StageAct::backward, chunk);
      if (splits_backward) load.weights += time(StageAct::weights, chunk);
    }
    loads.push_back(load);
  }
  return loads;
}

double bound_of(std::vector<StageLoad> const& loads, Index micro_batches) {
  auto const m = static_cast<double>(micro_batches);
  double before = 0, after = 0, bound = 0;
  for (StageLoad const& load : loads) {
    double const chains = before + m * load.chain;
    bound = std::max({bound, chains + after + loads.front().first_weights, chains + m * load.weights});
    before += load.first_forward;
    after += load.first_backward;
  }
  return bound;
}

/// All stages with the mean of all times.
std::vector<StageLoad> equal_loads(std::vector<StageLoad> const& loads) {
  StageLoad mean;
  auto const stages = static_cast<double>(loads.size());
  for (StageLoad const& load : loads) {
    mean.first_forward += load.first_forward / stages;
    mean.first_backward += load.first_backward / stages;
    mean.first_weights += load.first_weights / stages;
    mean.chain += load.chain / stages;
    mean.weights += load.weights / stages;
  }
  return std::vector<StageLoad>(loads.size(), mean);
}

} // namespace

Ticks pipeline_bound(PipelineShape const& shape, bool splits_backward, PipelinePrices const& prices) {
  return static_cast<Ticks>(bound_of(loads_of(shape, splits_backward, prices), shape.micro_batches));
}

Ticks slots_bound(PipelineShape const& shape, PipelinePrices const& prices, Index slots) {
  Ticks const turns = (shape.micro_batches + slots - 1) / slots;
  Ticks before = 0, round = 0, bound = 0;
  for (Index stage = 0; stage < shape.stages; ++stage) round += prices.load(stage);
  for (Index stage = 0; stage < shape.stages; ++stage) {
    bound = std::max(bound, before + turns * round);
    before += prices.load(stage);
    round -= prices.load(stage);
  }
  return bound;
}

double gap_percent(Ticks time, Ticks bound) {
  return bound > 0 ? 100 * static_cast<double>(time - bound) / static_cast<double>(bound) : 0;
}

PipelineTimeParts time_parts(PipelineProgram const& program, PipelinePrices const& prices) {
  return time_parts(program, prices, static_cast<double>(play_pipeline(program, prices).time));
}

PipelineTimeParts time_parts(PipelineProgram const& program, PipelinePrices const& prices, double time) {
  PipelineShape const& shape = program.shape;
  auto const stages = static_cast<double>(shape.stages);
  PipelinePrices without_messages = prices;
  without_messages.message = 0;
  PipelineTimeline const free = play_pipeline(program, without_messages);
  auto const free_time = static_cast<double>(free.time);
  auto const simulated = static_cast<double>(play_pipeline(program, prices).time);
  std::vector<StageLoad> const loads = loads_of(shape, program.splits_backward, prices);
  double const bound = bound_of(loads, shape.micro_batches);
  double const equal = bound_of(equal_loads(loads), shape.micro_batches);
  PipelineTimeParts parts{.time = stages * time, .busy = static_cast<double>(free.busy())};
  parts.unavoidable = stages * equal - parts.busy;
  parts.imbalance = stages * (bound - equal);
  parts.order = stages * (free_time - bound);
  parts.messages = stages * (simulated - free_time);
  parts.rest = stages * (time - simulated);
  return parts;
}

} // namespace trainstone
