#include "advice/least_time.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// Of a micro-batch: forward, what is computed again, and backward.
double seconds_of(PartTimes const& times, PartKind kind, Recompute again) {
  PartTimes::OfPart const& part = times.of(kind);
  double const recompute = again == Recompute::none ? 0 : part.recompute(again);
  return part.forward + recompute + std::min(part.backward, part.backward_adding);
}

double seconds_of_block(PartTimes const& times, Recompute again) {
  return seconds_of(times, PartKind::attention, again) + seconds_of(times, PartKind::mlp, again);
}

} // namespace

double least_seconds(ResolvedRun const& run, PartTimes const& times) {
  GptOptions const& options = run.config.model_options;
  double ramp = 0, work = 0;
  for (ModelStage const& stage : run.stages) {
    bool const is_last = &stage == &run.stages.back();
    Index const blocks = is_last ? std::ssize(stage.blocks) : blocks_by_chunk(stage).front();
    double sum = stage.embed ? seconds_of(times, PartKind::embed, Recompute::none) : 0;
    for (Index i = 0; i < blocks; ++i) {
      Index const block = stage.blocks[static_cast<std::size_t>(i)];
      // backward of the last block may follow its forward at once, and then computes nothing again
      sum += seconds_of_block(times, i + 1 < blocks ? options.recompute_of(block) : Recompute::none);
    }
    if (is_last)
      work = sum + seconds_of(times, PartKind::head, Recompute::none) + times.loss;
    else
      ramp += sum;
  }
  constexpr double rounding = 1e-6; // times of a timeline are whole nanoseconds
  return (1 - rounding) * (ramp + static_cast<double>(run.config.batch.accumulation) * work);
}

} // namespace trainstone
