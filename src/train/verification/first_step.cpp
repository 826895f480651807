#include "train/verification/first_step.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "parallel/engine/state_memory.hpp"
#include "train/learning_rate.hpp"

#include <algorithm>
#include <numeric>

namespace trainstone {

namespace {

std::vector<double> to_vector(ParameterChanges const& means) { return {means.begin(), means.end()}; }

/// Of rows of one micro-batch, losses and gradients of all positions that first_step_part() does not keep become 0. On
/// a rank with the model's head. \param[in] first_index  of the micro-batch's first sample in the global batch
/// \param[in] rows  whose logits are there
void keep_first_positions(Trainer& trainer, Index first_index, Index positions, Range const& rows) {
  Gpt const& model = trainer.model();
  ExecutionSpace const& exec = trainer.exec();
  MicroBatchShape const shape = model.shape();
  Index const slices = trainer.slices().count();
  auto const drop = [&](Index first, Index last) {
    Index const begin = std::max(first, rows.begin), size = std::min(last, rows.end) - begin;
    if (size <= 0) return;
    set_to_zero(exec, StoredVector(model.losses()).part(begin, size));
    for (Index slice = 0; slice < slices; ++slice) {
      StoredMatrix const logits = model.logits(slice);
      set_to_zero(exec, logits.flat().part((begin - rows.begin) * logits.columns, size * logits.columns));
    }
  };
  for (Index row = 0; row < shape.batch; ++row) {
    Range const kept = first_step_part(first_index + row, trainer.config().batch.global, positions);
    Index const begin = row * shape.sequence;
    drop(begin, begin + kept.begin);
    drop(begin + kept.end, begin + shape.sequence);
  }
}

/// The first sample again and again.
BatchSource repeated_first_sample(BatchSource const& training, Index sequence) {
  return [&training, sequence](std::int64_t, Index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
    training(0, 0, inputs, targets);
    for (std::span<std::int32_t> const tokens : {inputs, targets})
      for (auto row = tokens.begin() + sequence; row != tokens.end(); row += sequence)
        std::copy_n(tokens.begin(), sequence, row);
  };
}

/// Of the first positions of the micro-batch that was evaluated, on a rank with the model's head.
double mean_of_losses(Trainer& trainer, Index positions) {
  Vector<float const> const first(trainer.model().losses().data(), static_cast<std::size_t>(positions));
  std::vector<float> const losses =
      copy_to_host<float const>(trainer.exec(), first, "trainstone::train::first_sample_loss: the host adds them up");
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(positions);
}

} // namespace

Range first_step_part(Index index, Index samples, Index positions) {
  return {index * positions / samples, (index + 1) * positions / samples};
}

double first_sample_loss(Trainer& trainer, Index positions) {
  Index const sequence = trainer.model().shape().sequence;
  TRAINSTONE_REQUIRE(1 <= positions && positions <= sequence, "{} positions of a sample of {}", positions, sequence);
  ShardedEngine& engine = trainer.engine();
  StateLayout const& layout = engine.plan().layout;
  if (!layout.serves()) trainer.evaluate(0, 0);
  double const here = engine.plan().has_losses() ? mean_of_losses(trainer, positions) : 0;
  if (layout.mesh.servers > 0) // which hear of what all workers have
    return control_all_reduce(trainer.exec(), engine.communicators().of(Axis::shard), Operation::max, here);
  if (layout.mesh.pipeline == 1) return here;
  return control_all_reduce(trainer.exec(), engine.communicators().of(Axis::pipeline), Operation::sum, here);
}

FirstUpdateOutcome first_update(Trainer& trainer, Index positions) {
  Index const samples = trainer.config().batch.global, sequence = trainer.model().shape().sequence;
  TRAINSTONE_REQUIRE(samples <= positions && positions <= sequence,
                     "a first update of {} positions, must be at least {} and at most {}", positions, samples,
                     sequence);
  BatchSource const source = repeated_first_sample(trainer.batches().training, sequence);
  StateLayout const& layout = trainer.engine().plan().layout;
  PlayedStep played{.source = &source, .gradient_scale = 1 / static_cast<float>(positions)};
  played.after_loss = [&](Index micro_batch, Range const& rows) {
    keep_first_positions(trainer, layout.micro_batch(micro_batch) * trainer.model().shape().batch, positions, rows);
  };
  trainer.gradient(played);
  FirstUpdateOutcome outcome{.loss = played.total_loss / static_cast<double>(positions), .update = {}};
  if (trainer.engine().plan().by_priority()) { // no step needs it
    trainer.finish();
    played.norm = trainer.engine().gradient_norm();
  }
  outcome.update.norm = played.norm;
  outcome.update.gradients = to_vector(trainer.gradient_sizes());
  OptimizerConfig const& optimizer = trainer.config().optimizer;
  trainer.engine().update(optimizer, {optimizer.learning_rate, clip_factor(optimizer, played.norm), 1});
  trainer.finish();
  outcome.update.changes = to_vector(trainer.parameter_changes());
  outcome.update.loss_after = first_sample_loss(trainer, positions);
  trainer.engine().clear_moments();
  trainer.set_initial_parameters();
  return outcome;
}

} // namespace trainstone
