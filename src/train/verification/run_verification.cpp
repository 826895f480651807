#include "train/verification/run_verification.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/execution.hpp"
#include "comm/execution/shared_segment.hpp"
#include "comm/measurement/exact_data.hpp"
#include "core/host_copy.hpp"
#include "core/stored.hpp"
#include "model/reference_loss.hpp"
#include "parallel/engine/replica_check.hpp"
#include "train/plan/collective_cases.hpp"
#include "train/verification/first_step.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>

namespace trainstone {

namespace {

/// Passes if no rank has a difference; `value` is the number of ranks that have one.
Check exact(ExecutionSpace const& exec, Communicator& communicator, std::string const& name, bool equal_here,
            std::string const& detail) {
  auto const wrong = control_all_reduce(exec, communicator, Operation::sum, std::int64_t{equal_here ? 0 : 1});
  return {name, wrong == 0, static_cast<double>(wrong), 0, detail};
}

/// Relative; infinite, not NaN, which a maximum may lose, where one is no number.
double difference(double value, double expected) {
  double const relative = std::abs(value - expected) / std::abs(expected);
  if (value == expected) return 0;
  return std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity();
}

/// A number of a first update beside the reference's.
struct Compared {
  double error = 0;
  double bound = 0;
  std::string what = {};
};

/// The check of several numbers, each with a bound of its own: value and limit of the one that is farthest beyond, or
/// nearest to, its bound on any rank. Collective.
Check check_all(ExecutionSpace const& exec, Communicator& communicator, std::string name,
                std::vector<Compared> const& numbers, std::string const& detail) {
  std::vector<double> errors;
  for (Compared const& number : numbers) errors.push_back(number.error);
  control_all_reduce(exec, communicator, Operation::max, errors);
  std::vector<Compared> all = numbers;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].error = errors[i];
  Compared const worst = *std::ranges::max_element(
      all, [](Compared const& a, Compared const& b) { return a.error * b.bound < b.error * a.bound; });
  return {std::move(name), worst.error <= worst.bound, worst.error, worst.bound,
          fmt::format("{}; farthest from the reference is {}", detail, worst.what)};
}

/// How far a mean change by one update may be off, relative to it. It is divided by the gradient's size, so that it is
/// off by no more than the gradient is. A parameter is rounded when it changes by the learning rate: weights of norms,
/// which begin with 1, by u, all alike; weights, which lie within 5 standard deviations of 0.02, by u / 10; biases,
/// which begin with 0, by u of the change itself.
double change_bound(ParameterTensor const& tensor, double gradient_bound, double learning_rate) {
  double const size = std::abs(tensor.initial.constant) + 5 * tensor.initial.deviation + learning_rate;
  return gradient_bound + fp32_roundoff * size / learning_rate;
}

/// A case of collective_cases() on exact data, in memory of its own.
class ExactRun {
public:
  ExactRun(ExecutionSpace const& exec, Communicator& communicator, CollectiveCase const& tried)
      : m_exec(exec), m_communicator(&communicator), m_tried(tried) {}

  bool is_exact() {
    return with_storage(m_tried.storage, [&]<class T>() { return run<T>() == 0; });
  }

private:
  Problem const& problem() const { return m_tried.planned.problem; }

  /// How many elements are wrong.
  template <class T>
  Index run() {
    Schedule const schedule = make_schedule(problem(), m_tried.planned.algorithm, m_communicator->rank());
    Allocation own;
    std::optional<SharedSegment> segment;
    Arena arena = allocate<T>(schedule, own, segment);
    Vector<T> const data = arena.vector<T>("data", m_tried.extent());
    Vector<T> const scratch = arena.vector<T>("scratch", schedule.scratch_elements);
    PinnedMemory pinned(m_ledger, "check::collectives",
                        memory_footprint(staging_bytes(m_communicator->buffers(), schedule, sizeof(T))));

    ExactData const truth(problem(), Operation::sum, element_type_of<T>());
    std::vector<T> values(static_cast<std::size_t>(problem().elements()));
    truth.fill<T>(m_communicator->rank(), values);
    for_each_piece<T>(values, data, [&](std::span<T> host, Vector<T> const& piece) {
      copy_from_host<T>(m_exec, host, piece, "trainstone::check::collectives");
    });
    Execution(m_exec, *m_communicator, schedule, Operation::sum, data, scratch,
              {.purpose = Purpose::control,
               .segment = segment ? &*segment : nullptr,
               .pieces = m_tried.pieces,
               .staging = pinned.take(pinned.capacity())})
        .run();
    for_each_piece<T>(values, data, [&](std::span<T> host, Vector<T> const& piece) {
      copy_to_host<T>(m_exec, piece, host, "trainstone::check::collectives");
    });
    return truth.wrong<T>(m_communicator->rank(), values);
  }

  /// Data and scratch.
  template <class T>
  Arena allocate(Schedule const& schedule, Allocation& own, std::optional<SharedSegment>& segment) {
    std::uint64_t const bytes =
        total_bytes({planned<T>("data", m_tried.extent()), planned<T>("scratch", schedule.scratch_elements)});
    if (problem().shared_memory)
      segment.emplace(*m_communicator, m_ledger, MemoryCategory::buffers, "check::collectives", bytes);
    else
      own = Allocation(m_ledger, MemoryCategory::buffers, "check::collectives", bytes);
    return Arena(segment ? segment->bytes() : own.bytes());
  }

  template <class T, class Body>
  void for_each_piece(std::span<T> values, Vector<T> const& data, Body const& body) const {
    auto const elements = static_cast<Index>(values.size());
    for (Index done = 0; done < elements;) {
      auto const size = static_cast<std::size_t>(m_tried.pieces.contiguous(done, elements - done));
      body(values.subspan(static_cast<std::size_t>(done), size),
           Vector<T>(data.data() + m_tried.pieces.place(done), size));
      done += static_cast<Index>(size);
    }
  }

  ExecutionSpace m_exec;
  Communicator* m_communicator;
  CollectiveCase m_tried;
  MemoryLedger m_ledger; // the run has not allocated yet: its own ledger stays untouched
};

} // namespace

Check check_collectives(ExecutionSpace const& exec, Communicator& communicator, ShardPlan const& plan) {
  MeshCommunicators communicators(communicator, plan.layout.mesh);
  std::optional<Communicator> ends; // of a pipeline
  if (plan.pipeline.has_stages()) ends = communicators.split({0, plan.layout.mesh.pipeline - 1});
  bool equal = true;
  std::vector<std::string> names;
  std::uint64_t most_bytes = 0;
  for (CollectiveCase const& tried : collective_cases(plan)) {
    Problem const& problem = tried.planned.problem;
    std::string const name = fmt::format("{} {}", to_string(problem.collective), to_string(tried.planned.algorithm));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    most_bytes = std::max(most_bytes, static_cast<std::uint64_t>(problem.elements()) * bytes_per_value(tried.storage));
    Communicator& members = tried.planned.stages ? ends.value() : communicators.of(tried.planned.axis);
    equal = ExactRun(exec, members, tried).is_exact() && equal;
  }
  return exact(exec, communicator, "collectives-exact", equal,
               fmt::format("whole numbers, up to {} bytes: {}", most_bytes, fmt::join(names, ", ")));
}

Check check_first_step(ExecutionSpace const& exec, Communicator& communicator, Trainer& trainer,
                       FirstStepReference const& expected) {
  double const worst = control_all_reduce(exec, communicator, Operation::max,
                                          difference(first_sample_loss(trainer, expected.positions), expected.loss));
  double const bound = reference_loss_bound(trainer.model().config());
  return {"first-step", worst <= bound, worst, bound,
          fmt::format("loss of the first {} positions before any update, beside {:.10f} in float64", expected.positions,
                      expected.loss)};
}

std::vector<Check> check_first_update(ExecutionSpace const& exec, Communicator& communicator, Trainer& trainer,
                                      FirstStepReference const& expected, FirstUpdate const& update) {
  auto const [loss, found] = first_update(trainer, expected.positions);
  GptConfig const& model = trainer.model().config();
  double const of_loss = reference_loss_bound(model), of_gradients = 2 * stream_error_bound(model);
  std::vector<Compared> sizes, changes;
  ParameterTable const table(model, 1);
  for (int kind = 0; kind < tensor_kinds; ++kind) {
    auto const tensor = static_cast<Tensor>(kind);
    auto const i = static_cast<std::size_t>(kind);
    std::string const name(to_string(tensor));
    ParameterTensor const& one = *std::ranges::find(table.tensors(), tensor, &ParameterTensor::tensor);
    sizes.push_back({difference(found.gradients[i], update.gradients[i]), of_gradients, name});
    changes.push_back({difference(found.changes[i], update.changes[i]),
                       change_bound(one, of_gradients, trainer.config().optimizer.learning_rate), name});
  }
  auto const check = [&](std::string name, std::vector<Compared> const& numbers, std::string const& detail) {
    return check_all(exec, communicator, std::move(name), numbers, detail);
  };
  return {check("first-update",
                {{difference(loss, expected.loss), of_loss, "the loss before the update"},
                 {difference(found.loss_after, update.loss_after), of_loss + of_gradients, "the loss after it"}},
                fmt::format("losses of the first {} positions before and after an update, beside {:.8f} and {:.8f} in "
                            "float64",
                            expected.positions, expected.loss, update.loss_after)),
          check("gradient-norms", {{difference(found.norm, update.norm), of_gradients, "the norm of its gradient"}},
                fmt::format("beside {:.8f} in float64", update.norm)),
          check("gradient-sizes", sizes, "mean size of each kind of parameter's gradient, beside float64"),
          check("parameter-changes", changes, "mean change of each kind of parameter, beside float64")};
}

Check check_launch(Communicator const& communicator) {
  auto const ranks = static_cast<double>(communicator.size());
  // the launcher's word comes first: under a batch system, launchers start their helpers with its variables
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (char const* const value = std::getenv(name)) {
      double const wanted = std::atoi(value);
      return {"launch", ranks == wanted, ranks, wanted, "ranks in the world, ranks that the launcher started"};
    }
  }
  return {.name = "launch",
          .value = ranks,
          .limit = std::numeric_limits<double>::quiet_NaN(),
          .detail = "ranks in the world; no launcher told how many it started",
          .made = false};
}

Check check_replicas(ExecutionSpace const& exec, Communicator& communicator, Trainer& trainer) {
  trainer.finish();
  auto const [equal, hash] = compare_replicas(exec, communicator, trainer.engine());
  return {"replicas-agree", equal, equal ? 0.0 : 1.0, 0,
          fmt::format("hash of all parameters {:016x}{}{}", hash.value,
                      trainer.slices().cuts() ? fmt::format(", every layer in {} slices", trainer.slices().blocks) : "",
                      hash.copies_agree ? "" : "; first and last stage differ in the token table")};
}

Check check_finite(ExecutionSpace const& exec, Communicator& communicator, Trainer& trainer) {
  return exact(exec, communicator, "finite", trainer.parameters_are_finite(), "parameters after the last update");
}

Check check_memory(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan,
                   CountedRun const& counted) {
  CategoryBytes const predicted = plan.memory_bytes();
  std::string detail = "bytes per category, predicted and in the ledger:";
  for (MemoryCategory category : memory_categories)
    detail += fmt::format(" {} {} {}", to_string(category), predicted[category], counted.memory[category]);
  return exact(exec, communicator, "memory-model", counted.memory == predicted, detail);
}

PredictedMessages predicted_messages(RunPlan const& plan, CountedRun const& counted) {
  auto const steps = static_cast<std::uint64_t>(counted.steps);
  auto const validations = static_cast<std::uint64_t>(counted.validations * counted.validation_batches);
  auto const evaluated = validations * static_cast<std::uint64_t>(plan.held_out_micro_batches);
  std::uint64_t const replica_checks = plan.replica_checks(counted.before + counted.steps) -
                                       plan.replica_checks(counted.before) +
                                       static_cast<std::uint64_t>(counted.checkpoints);
  return {.training = steps * plan.step_sent() + evaluated * plan.validation_sent,
          .control = steps * plan.step_control() + validations * plan.validation_control +
                     replica_checks * plan.replica_check +
                     static_cast<std::uint64_t>(counted.changes) * plan.changes_sent,
          .start = static_cast<std::uint64_t>(counted.starts) * plan.start_sent(),
          .not_sent = static_cast<std::uint64_t>(counted.skipped) * plan.update_sent};
}

Check check_messages(ExecutionSpace const& exec, Communicator& communicator, PredictedMessages const& predicted,
                     CountedRun const& counted) {
  auto const& [training, control, start, not_sent] = predicted;
  Traffic const sent = counted.communication.total(Purpose::training) + not_sent;
  Traffic const agreed = counted.communication.total(Purpose::control);
  std::string detail =
      fmt::format("bytes and messages, predicted {} {} and control {} {}, sent (or skipped with an update) {} {} and "
                  "control {} {}",
                  training.bytes, training.messages, control.bytes, control.messages, sent.bytes, sent.messages,
                  agreed.bytes, agreed.messages);
  if (start.messages + counted.start.messages > 0)
    detail += fmt::format("; at the start predicted {} {}, sent {} {}", start.bytes, start.messages,
                          counted.start.bytes, counted.start.messages);
  return exact(exec, communicator, "comm-volume", training == sent && control == agreed && start == counted.start,
               detail);
}

Check check_flops(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan,
                  CountedRun const& counted) {
  auto const evaluated =
      static_cast<std::uint64_t>(counted.validations * counted.validation_batches * plan.held_out_micro_batches);
  auto const steps = static_cast<std::uint64_t>(counted.steps);
  std::uint64_t const gemm = steps * plan.step_flops.gemm + evaluated * plan.evaluation_flops.gemm;
  std::uint64_t const attention = steps * plan.step_flops.attention + evaluated * plan.evaluation_flops.attention;
  std::uint64_t const launches =
      steps * plan.step_launches + static_cast<std::uint64_t>(counted.steps - counted.skipped) * plan.update_launches +
      evaluated * plan.evaluation_launches + static_cast<std::uint64_t>(counted.changes) * plan.changes_launches;
  bool const equal = counted.kernels.flops[Phase::gemm] == gemm &&
                     counted.kernels.flops[Phase::attention] == attention &&
                     total_launches(counted.kernels) == launches;
  return exact(exec, communicator, "flops-model", equal,
               fmt::format("predicted GEMM {} attention {}, {} kernels, counted {} {}, {}", gemm, attention, launches,
                           counted.kernels.flops[Phase::gemm], counted.kernels.flops[Phase::attention],
                           total_launches(counted.kernels)));
}

Check check_moves(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan,
                  CountedRun const& counted, std::optional<FilesOfRanks> const& files) {
  auto const evaluated =
      static_cast<std::uint64_t>(counted.validations * counted.validation_batches * plan.held_out_micro_batches);
  StateMoves const updates = static_cast<std::uint64_t>(counted.steps - counted.skipped) * plan.update_moves,
                   gathers = static_cast<std::uint64_t>(counted.steps) * plan.gather_moves +
                             evaluated * plan.evaluation_moves;
  auto const words = [](StateMoves const& moves) {
    return fmt::format("to the host {}, to kernels {}, read {}, written {} in {} requests", moves.to_host,
                       moves.to_kernels, moves.read, moves.written, moves.requests);
  };
  std::string detail =
      fmt::format("bytes, predicted {}; moved {}", words(updates + gathers), words(counted.moves + counted.gathered));
  if (files) detail += fmt::format("; files {}", to_string(*files));
  return exact(exec, communicator, "offload-volume", counted.moves == updates && counted.gathered == gathers, detail);
}

} // namespace trainstone
