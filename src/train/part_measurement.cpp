#include "train/part_measurement.hpp"

#include "comm/execution/control.hpp"
#include "core/random.hpp"
#include "kernels/accumulate.hpp"
#include "train/plan/run_plan.hpp"
#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace trainstone {

namespace {

/// Any tokens do.
BatchSource tokens_below(std::int64_t vocab) {
  return [vocab](std::int64_t step, Index micro_batch, std::span<std::int32_t> inputs,
                 std::span<std::int32_t> targets) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      auto const place = (static_cast<std::uint64_t>(step) << 40) + (static_cast<std::uint64_t>(micro_batch) << 32) + i;
      RandomBlock const random = random_block(1, RandomStream::synthetic_data, place);
      inputs[i] = static_cast<std::int32_t>(random.words[0] % static_cast<std::uint32_t>(vocab));
      targets[i] = static_cast<std::int32_t>(random.words[1] % static_cast<std::uint32_t>(vocab));
    }
  };
}

/// What is timed together: an act on a kind of part, in a first micro-batch or a later one.
struct TimedKind {
  Act act;
  std::optional<PartKind> part = {}; ///< of forward, recompute and backward
  bool later = false;                ///< of backward
  Recompute how = Recompute::none;   ///< of recompute
  Index piece = Instruction::none;   ///< of a pass that runs piece by piece
  auto operator<=>(TimedKind const&) const = default;
};

/// The mean time of every kind in every step.
class StepTimes {
public:
  explicit StepTimes(PartTable const& parts) : m_parts(parts) {}

  void add(Instruction const& one, double seconds) {
    TimedKind kind{.act = one.act, .later = one.act == Act::backward && one.micro_batch > 0};
    if (one.act == Act::forward || one.act == Act::recompute || one.act == Act::backward)
      kind.part = m_parts[one.subject].kind;
    if (one.act == Act::recompute) kind.how = m_parts.recompute(m_parts[one.subject]);
    bool const is_shared = m_parts.options().slices.have_sharers(); // other pieces follow from buckets
    if (computes(one.act) && is_shared) kind.piece = one.piece;
    auto& [sum, count] = m_step[kind];
    sum += seconds;
    if (!computes(one.act) || is_shared || begins_pass(one)) ++count;
  }
  void end_step(bool counts) {
    for (auto const& [kind, total] : m_step)
      if (counts) m_means[kind].push_back(total.first / static_cast<double>(total.second));
    m_step.clear();
  }
  /// Of a pass that runs piece by piece: the sum over its pieces.
  double median(TimedKind const& kind) const {
    std::vector<double> const pieces = medians_of_pieces(kind);
    auto const found = m_means.find(kind);
    TRAINSTONE_REQUIRE(found != m_means.end() || !pieces.empty(), "no step has timed {} {}", to_string(kind.act),
                       kind.part ? to_string(*kind.part) : "");
    return found != m_means.end() ? median_of(found->second) : std::accumulate(pieces.begin(), pieces.end(), 0.0);
  }
  double median(Act act) const { return median(TimedKind{.act = act}); }
  /// 0 if no step does it.
  double median_if_any(TimedKind const& kind) const { return is_timed(kind) ? median(kind) : 0; }

  /// By piece; empty if the pass runs as a whole.
  std::vector<double> medians_of_pieces(TimedKind kind) const {
    std::vector<double> medians;
    for (kind.piece = 0; m_means.contains(kind); ++kind.piece) medians.push_back(median_of(m_means.at(kind)));
    return medians;
  }

  static double median_of(std::vector<double> samples) {
    std::ranges::sort(samples);
    std::size_t const middle = samples.size() / 2;
    return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  }

private:
  bool is_timed(TimedKind kind) const {
    bool const as_whole = m_means.contains(kind);
    kind.piece = 0;
    return as_whole || m_means.contains(kind);
  }

  PartTable const& m_parts;
  std::map<TimedKind, std::pair<double, int>> m_step;
  std::map<TimedKind, std::vector<double>> m_means;
};

/// Seconds per element of accumulate(), on vectors that no cache holds.
double time_accumulate(ExecutionSpace const& exec, Communicator& communicator, Write write, StoredVector from,
                       StoredVector to) {
  std::vector<double> samples;
  for (int sample = 0; sample < 6; ++sample) {
    barrier(communicator);
    exec.fence("trainstone::train::time_accumulate: begins");
    SteadyTime const begin = std::chrono::steady_clock::now();
    accumulate(exec, write, from, to);
    exec.fence("trainstone::train::time_accumulate: ends");
    if (sample > 0) samples.push_back(seconds_since(begin)); // the first one touches the memory
  }
  return StepTimes::median_of(samples) / static_cast<double>(from.size);
}

void measure_accumulate(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                        RunPlan const& plan, PartTimes& times) {
  constexpr Index most = Index{1} << 24;
  Index const elements = std::min(most, plan.parallel.layout.elements());
  Storage const storage = plan.parallel.reductions.storage;
  std::vector<PlannedTensor> const tensors(2, planned(storage, "accumulate", elements));
  Allocation const memory(ledger, MemoryCategory::buffers, "accumulate", total_bytes(tensors));
  Arena arena(memory.bytes());
  StoredVector const from = take_vector(arena, storage, "accumulate", elements);
  StoredVector const to = take_vector(arena, storage, "accumulate", elements);
  set_to_zero(exec, from);
  set_to_zero(exec, to);
  times.copy_of_element = time_accumulate(exec, communicator, Write::overwrite, from, to);
  times.add_of_element = time_accumulate(exec, communicator, Write::add, from, to);
}

void add_shares(PartTimes& times, StepTimes const& steps, TimedKind const& kind, PassOfPart const& pass) {
  std::vector<double> shares = steps.medians_of_pieces(kind);
  double const sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  if (shares.size() > 1) times.piece_shares[pass] = shares;
}

void add_piece_shares(PartTimes& times, StepTimes const& steps) {
  for (PartKind const kind : part_kinds) {
    add_shares(times, steps, {Act::forward, kind}, {kind, Pass::forward});
    add_shares(times, steps, {Act::backward, kind}, {kind, Pass::backward});
    add_shares(times, steps, {Act::recompute, kind, false, Recompute::full}, {kind, Pass::recompute, Recompute::full});
  }
  add_shares(times, steps, {Act::loss}, {PartKind::head, Pass::loss});
}

PartTimes times_of(StepTimes const& steps, RunPlan const& plan) {
  PartTimes times;
  for (PartKind const kind : part_kinds)
    times.parts[kind] = {steps.median({Act::forward, kind}), steps.median({Act::backward, kind}),
                         steps.median({Act::backward, kind, true}),
                         steps.median_if_any({Act::recompute, kind, false, Recompute::selective}),
                         steps.median_if_any({Act::recompute, kind, false, Recompute::full})};
  auto const elements = static_cast<double>(plan.parallel.layout.share_elements());
  times.load = steps.median(Act::load);
  times.loss = steps.median(Act::loss);
  times.agree = steps.median(Act::agree);
  times.norm_of_element = steps.median(Act::norm) / elements;
  times.update_of_element = steps.median(Act::update) / elements;
  add_piece_shares(times, steps);
  return times;
}

/// A step waits for its slowest rank. Shares of pieces are those of rank 0.
PartTimes of_slowest(ExecutionSpace const& exec, Communicator& communicator, PartTimes times) {
  std::vector<double*> all{&times.load,
                           &times.loss,
                           &times.agree,
                           &times.norm_of_element,
                           &times.update_of_element,
                           &times.copy_of_element,
                           &times.add_of_element};
  for (auto& [kind, part] : times.parts)
    for (double* const one :
         {&part.forward, &part.backward, &part.backward_adding, &part.recompute_selective, &part.recompute_full})
      all.push_back(one);
  std::vector<double> values;
  for (double const* const one : all) values.push_back(*one);
  control_all_reduce(exec, communicator, Operation::max, values);
  for (std::size_t i = 0; i < all.size(); ++i) *all[i] = values[i];
  for (auto& [pass, shares] : times.piece_shares) {
    if (communicator.rank() != 0) std::ranges::fill(shares, 0.0);
    control_all_reduce(exec, communicator, Operation::sum, shares);
  }
  return times;
}

/// What blocks compute again, each value twice: the last block finds its activations where they are, and computes
/// nothing again. Empty if no block does.
std::vector<Recompute> each_twice(std::vector<Recompute> const& recompute) {
  std::set<Recompute> different(recompute.begin(), recompute.end());
  different.erase(Recompute::none);
  std::vector<Recompute> all;
  for (int time = 0; time < 2; ++time) all.insert(all.end(), different.begin(), different.end());
  return all;
}

} // namespace

RunConfig measured_training(RunConfig const& config) {
  constexpr std::int64_t most_layers = 4, micro_batches = 2; // the second one adds to gradients
  RunConfig training;
  training.model = config.model;
  training.model.layers = std::min(config.model.layers, most_layers);
  training.model_options = config.model_options;
  training.model_options.recompute = each_twice(config.model_options.recompute);
  if (!training.model_options.recompute.empty()) training.model.layers = std::ssize(training.model_options.recompute);
  training.data.sequence = config.data.sequence;
  training.batch = {config.batch.micro, micro_batches, micro_batches * config.batch.micro};
  training.precision = config.precision;
  training.optimizer = config.optimizer;
  training.optimizer.learning_rate = 1e-9; // random tokens must not make the loss infinite
  training.schedule = {ScheduleType::constant, 0, 1.0};
  training.parallel.reduction = config.parallel.reduction;
  training.parallel.tensor_blocks = config.parallel.slices();
  training.parallel.sequence = config.parallel.sequence;
  training.parallel.tensor_keep_gathered = config.parallel.tensor_keep_gathered;
  training.parallel.tensor_row_chunks = config.parallel.tensor_row_chunks;
  training.tensor_ranks_alone = config.parallel.tensor;
  training.feature_ranks_alone = config.parallel.features();
  training.comm.buffers = config.comm.buffers;
  training.kernels = config.kernels;
  return training;
}

PartTimes measure_parts(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                        ResolvedRun const& training, PartMeasurement const& options) {
  constexpr std::int64_t warm_up = 2;
  Communicator alone = communicator.split(communicator.rank());
  RunPlan const plan = plan_run(training, 0);
  StepTimes steps(plan.parallel.parts);
  PartTimes times;
  {
    Trainer trainer(exec, alone, ledger, training.config, plan, {tokens_below(training.config.model.vocab), {}, 0},
                    warm_up + options.most_steps);
    trainer.time_instructions([&](Instruction const& one, double seconds) { steps.add(one, seconds); });
    std::int64_t last = warm_up;
    for (std::int64_t step = 1; step <= last; ++step) {
      barrier(communicator);
      SteadyTime const begin = std::chrono::steady_clock::now();
      trainer.step(step);
      double const seconds = control_all_reduce(exec, communicator, Operation::max, seconds_since(begin));
      steps.end_step(step > warm_up);
      if (step == warm_up)
        last += std::clamp(std::llround(options.seconds / seconds), static_cast<long long>(options.fewest_steps),
                           static_cast<long long>(options.most_steps));
    }
    times = times_of(steps, plan);
  }
  measure_accumulate(exec, communicator, ledger, plan, times);
  return of_slowest(exec, communicator, std::move(times));
}

} // namespace trainstone
