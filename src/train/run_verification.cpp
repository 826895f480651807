#include "train/run_verification.hpp"

#include "comm/buffers.hpp"
#include "comm/control.hpp"
#include "comm/execution/execution.hpp"
#include "comm/execution/shared_segment.hpp"
#include "comm/measurement/exact_data.hpp"
#include "comm/registry.hpp"
#include "core/host_copy.hpp"
#include "core/stored.hpp"
#include "model/reference_loss.hpp"
#include "train/collective_cases.hpp"
#include "train/replica_check.hpp"

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
                        Arena::footprint(staging_bytes(m_communicator->buffers(), schedule, sizeof(T))));

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
  MeshCommunicators communicators(communicator, plan.mesh);
  bool equal = true;
  std::vector<std::string> names;
  std::uint64_t most_bytes = 0;
  for (CollectiveCase const& tried : collective_cases(plan)) {
    Problem const& problem = tried.planned.problem;
    std::string const name = fmt::format("{} {}", to_string(problem.collective), to_string(tried.planned.algorithm));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    most_bytes = std::max(most_bytes, static_cast<std::uint64_t>(problem.elements()) * bytes_per_value(tried.storage));
    equal = ExactRun(exec, communicators.of(tried.planned.axis), tried).is_exact() && equal;
  }
  return exact(exec, communicator, "collectives-exact", equal,
               fmt::format("whole numbers, up to {} bytes: {}", most_bytes, fmt::join(names, ", ")));
}

Check check_first_step(ExecutionSpace const& exec, Communicator& communicator, Trainer& trainer,
                       FirstStepReference const& expected) {
  double difference = std::abs(trainer.first_sample_loss(expected.positions) / expected.loss - 1);
  if (!std::isfinite(difference)) difference = std::numeric_limits<double>::infinity(); // a maximum may lose a NaN
  difference = control_all_reduce(exec, communicator, Operation::max, difference);
  double const bound = reference_loss_bound(trainer.model().config());
  return {"first-step", difference <= bound, difference, bound,
          fmt::format("loss of the first {} positions before any update, beside {:.10f} in float64", expected.positions,
                      expected.loss)};
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
  return {"replicas-agree", equal, equal ? 0.0 : 1.0, 0, fmt::format("hash of all parameters {:016x}", hash)};
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

Check check_messages(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan,
                     CountedRun const& counted) {
  auto const steps = static_cast<std::uint64_t>(counted.steps);
  auto const validations = static_cast<std::uint64_t>(counted.validations * counted.validation_batches);
  auto const evaluated = validations * static_cast<std::uint64_t>(plan.accumulation);
  std::uint64_t const replica_checks = plan.replica_checks(counted.before + counted.steps) -
                                       plan.replica_checks(counted.before) +
                                       static_cast<std::uint64_t>(counted.checkpoints);
  Traffic const training = steps * plan.step_sent() + evaluated * plan.validation_sent;
  Traffic const control = steps * plan.step_control() + validations * plan.validation_control +
                          replica_checks * plan.replica_check +
                          static_cast<std::uint64_t>(counted.changes) * plan.changes_sent;
  Traffic const not_sent = static_cast<std::uint64_t>(counted.skipped) * plan.update_sent;
  Traffic const sent = counted.communication.total(Purpose::training) + not_sent;
  Traffic const agreed = counted.communication.total(Purpose::control);
  Traffic const start = static_cast<std::uint64_t>(counted.starts) * plan.start_sent();
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
      static_cast<std::uint64_t>(counted.validations * counted.validation_batches * plan.accumulation);
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

} // namespace trainstone
