#include "train/run_verification.hpp"

#include "comm/buffers.hpp"
#include "comm/control.hpp"
#include "comm/execution/execution.hpp"
#include "comm/execution/shared_segment.hpp"
#include "comm/registry.hpp"
#include "core/host_copy.hpp"
#include "model/reference_loss.hpp"
#include "train/replica_check.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

namespace trainstone {

namespace {

/// Passes if no rank has a difference; `value` is the number of ranks that have one.
Check exact(ExecutionSpace const& exec, Communicator& communicator, std::string const& name, bool equal_here,
            std::string const& detail) {
  auto const wrong = control_all_reduce(exec, communicator, Operation::sum, std::int64_t{equal_here ? 0 : 1});
  return {name, wrong == 0, static_cast<double>(wrong), 0, detail};
}

/// Small integers: their sum is exact in fp32 over millions of ranks.
float contribution(std::size_t element, Rank rank) {
  return static_cast<float>((element + static_cast<std::size_t>(rank)) % 7);
}

/// A collective on small integers, in its own memory.
class IntegerRun {
public:
  IntegerRun(ExecutionSpace const& exec, Communicator& communicator, PlannedCollective const& planned, Index elements)
      : m_exec(exec), m_communicator(&communicator), m_problem(planned.problem), m_algorithm(planned.algorithm) {
    m_problem.partition = Partition::even(elements, communicator.size());
  }

  bool is_exact() {
    Schedule const schedule = make_schedule(m_problem, m_algorithm, m_communicator->rank());
    std::vector<PlannedTensor> const tensors{planned<float>("data", m_problem.elements()),
                                             planned<float>("scratch", schedule.scratch_elements)};
    std::optional<SharedSegment> segment;
    Allocation memory;
    if (m_problem.shared_memory) {
      segment.emplace(*m_communicator, m_ledger, MemoryCategory::buffers, "check::collectives", total_bytes(tensors));
    } else {
      memory = Allocation(m_ledger, MemoryCategory::buffers, "check::collectives", total_bytes(tensors));
    }
    Arena arena(segment ? segment->bytes() : memory.bytes());
    Vector<float> const view = arena.vector<float>("data", m_problem.elements());
    Vector<float> const scratch = arena.vector<float>("scratch", schedule.scratch_elements);
    std::vector<float> values(view.extent(0));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = contribution(i, m_communicator->rank());
    copy_from_host<float>(m_exec, values, view, "trainstone::check::collectives");
    PinnedMemory pinned(m_ledger, "check::collectives",
                        Arena::footprint(staging_bytes(m_communicator->buffers(), schedule, sizeof(float))));
    Execution(m_exec, *m_communicator, schedule, Operation::sum, view, scratch,
              {.purpose = Purpose::control,
               .segment = segment ? &*segment : nullptr,
               .staging = pinned.take(pinned.capacity())})
        .run();
    copy_to_host<float>(m_exec, view, values, "trainstone::check::collectives");
    return has_result(values);
  }

private:
  float expected(std::size_t element) const {
    if (m_problem.collective == Collective::all_gather) {
      Rank owner = 0;
      while (m_problem.partition.range(owner).end <= static_cast<Index>(element)) ++owner;
      return contribution(element, owner);
    }
    if (m_problem.collective == Collective::broadcast) return contribution(element, m_problem.root);
    std::int64_t sum = 0;
    for (Rank rank = 0; rank < m_communicator->size(); ++rank)
      sum += static_cast<std::int64_t>(contribution(element, rank));
    return static_cast<float>(sum);
  }

  /// What this rank holds of the result.
  Range held() const {
    Rank const rank = m_communicator->rank();
    if (m_problem.collective == Collective::reduce_scatter) return m_problem.partition.range(rank);
    bool const nothing = m_problem.collective == Collective::reduce && rank != m_problem.root;
    return {0, nothing ? 0 : m_problem.elements()};
  }

  bool has_result(std::vector<float> const& values) const {
    Range const range = held();
    for (auto i = static_cast<std::size_t>(range.begin); i < static_cast<std::size_t>(range.end); ++i)
      if (values[i] != expected(i)) return false;
    return true;
  }

  ExecutionSpace m_exec;
  Communicator* m_communicator;
  Problem m_problem;
  Algorithm m_algorithm;
  MemoryLedger m_ledger; // the run has not allocated yet: its own ledger stays untouched
};

} // namespace

Check check_collectives(ExecutionSpace const& exec, Communicator& communicator, ShardPlan const& plan) {
  MeshCommunicators communicators(communicator, plan.mesh);
  std::vector<PlannedCollective> all = plan.reduction;
  if (plan.gathers.front()) all.push_back(*plan.gathers.front());
  bool equal = true;
  std::string names;
  for (PlannedCollective tried : all) {
    names += fmt::format(" {} {}", to_string(tried.problem.collective), to_string(tried.algorithm));
    Communicator& communicator_of_axis = communicators.of(tried.axis);
    for (Rank const root : {tried.problem.root, communicator_of_axis.size() - 1}) { // owners of groups
      tried.problem.root = root;
      for (Index elements : {Index{0}, Index{1}, Index{7}, Index{1009}, Index{65536}})
        equal = IntegerRun(exec, communicator_of_axis, tried, elements).is_exact() && equal;
      if (tried.problem.collective != Collective::reduce && tried.problem.collective != Collective::broadcast) break;
    }
  }
  return exact(exec, communicator, "collectives-exact", equal, "integer values, 0 to 65536 elements:" + names);
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
  Rank const ranks = communicator.size();
  Rank wanted = ranks;
  // the launcher's word comes first: under a batch system, launchers start their helpers with its variables
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (char const* const value = std::getenv(name)) {
      wanted = std::atoi(value);
      break;
    }
  }
  return {"launch", ranks == wanted, static_cast<double>(ranks), static_cast<double>(wanted),
          "ranks in the world, ranks that the launcher started"};
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
  Traffic const control =
      steps * plan.step_control() + validations * plan.validation_control + replica_checks * plan.replica_check;
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
  std::uint64_t const launches = steps * plan.step_launches +
                                 static_cast<std::uint64_t>(counted.steps - counted.skipped) * plan.update_launches +
                                 evaluated * plan.evaluation_launches;
  bool const equal = counted.kernels.flops[Phase::gemm] == gemm &&
                     counted.kernels.flops[Phase::attention] == attention &&
                     total_launches(counted.kernels) == launches;
  return exact(exec, communicator, "flops-model", equal,
               fmt::format("predicted GEMM {} attention {}, {} kernels, counted {} {}, {}", gemm, attention, launches,
                           counted.kernels.flops[Phase::gemm], counted.kernels.flops[Phase::attention],
                           total_launches(counted.kernels)));
}

} // namespace trainstone
