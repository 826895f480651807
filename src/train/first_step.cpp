// What is known of a training before it begins: its first loss, and the first update, which is one step of the trainer
// on a batch whose gradient is known. Nothing is left of either.

#include "core/host_copy.hpp"
#include "parallel/state_memory.hpp"
#include "train/trainer.hpp"

#include <algorithm>
#include <numeric>

namespace trainstone {

Range first_step_part(Index place, Index samples, Index positions) {
  return {place * positions / samples, (place + 1) * positions / samples};
}

double Trainer::first_sample_loss(Index positions) {
  TRAINSTONE_REQUIRE(1 <= positions && positions <= m_plan->shape.sequence, "{} positions of a sample of {}", positions,
                     m_plan->shape.sequence);
  m_model.loss(m_exec, forward_only(0, 0), LossMode::evaluation);
  Vector<float const> const first(m_model.losses().data(), static_cast<std::size_t>(positions));
  std::vector<float> const losses =
      copy_to_host<float const>(m_exec, first, "trainstone::train::first_sample_loss: the host adds them up");
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(positions);
}

Trainer::FirstUpdateOutcome Trainer::first_update(Index positions) {
  Index const samples = m_config->batch.global;
  TRAINSTONE_REQUIRE(samples <= positions && positions <= m_plan->shape.sequence,
                     "a first update of {} positions, must be at least {} and at most {}", positions, samples,
                     m_plan->shape.sequence);
  // the first sample again and again
  BatchSource const first_sample = [this](std::int64_t, Index, std::span<std::int32_t> inputs,
                                          std::span<std::int32_t> targets) {
    m_batches.training(0, 0, inputs, targets);
    for (std::span<std::int32_t> const tokens : {inputs, targets})
      for (auto row = tokens.begin() + m_plan->shape.sequence; row != tokens.end(); row += m_plan->shape.sequence)
        std::copy_n(tokens.begin(), m_plan->shape.sequence, row);
  };
  constexpr std::int64_t no_step = 0; // faults are for training steps
  m_loader.begin(m_exec);
  play(m_program.step, {&first_sample, 0, LossMode::training, no_step, positions});
  FirstUpdateOutcome outcome{.loss = m_total_loss / static_cast<double>(positions), .update = {}};
  outcome.update.norm = m_norm;
  auto const to_vector = [](ParameterChanges const& means) { return std::vector<double>(means.begin(), means.end()); };
  outcome.update.gradients = to_vector(
      gradient_sizes(m_exec, *m_communicator, m_engine, m_plan->table, Vector<double>(m_loss_sums.data(), 1)));
  OptimizerConfig const& optimizer = m_config->optimizer;
  m_engine.update(optimizer, {optimizer.learning_rate, clip_factor(outcome.update.norm), 1});
  m_engine.finish();
  outcome.update.changes = to_vector(parameter_changes());
  outcome.update.loss_after = first_sample_loss(positions);
  m_engine.clear_moments();
  set_initial_parameters();
  return outcome;
}

/// Losses and gradients of all other positions become 0.
void Trainer::keep_first_positions(GlobalBatch const& global, Index turn) {
  MicroBatchShape const& shape = m_plan->shape;
  StoredMatrix const logits = m_model.output({PartKind::head});
  auto const drop = [&](Index begin, Index end) {
    Index const rows = end - begin;
    if (rows == 0) return;
    set_to_zero(m_exec, StoredVector(m_model.losses()).part(begin, rows));
    set_to_zero(m_exec, logits.flat().part(begin * logits.columns, rows * logits.columns));
  };
  Index const first_place = m_plan->parallel.micro_batch(turn) * shape.batch;
  for (Index row = 0; row < shape.batch; ++row) {
    Range const kept = first_step_part(first_place + row, m_config->batch.global, global.first_positions);
    Index const begin = row * shape.sequence;
    drop(begin, begin + kept.begin);
    drop(begin + kept.end, begin + shape.sequence);
  }
}

} // namespace trainstone
