#include "train/diagnosis.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "kernels/norm.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

/// Ranks check their outputs if their own loss is not finite.
Part first_bad_part(DiagnosedTraining const& training, bool is_mine) {
  std::vector<Part> const all = parts(training.model.config().layers);
  // the head's logits are already their gradient: it is the one that is left when no output before it is bad
  std::int64_t const head = std::ssize(all) - 1;
  std::int64_t bad = is_mine ? 0 : head;
  auto const is_bad = [&](std::int64_t part) {
    if (!training.model.keeps_output(all[static_cast<std::size_t>(part)])) return false; // a later part shows it
    StoredMatrix const output = training.model.output(all[static_cast<std::size_t>(part)]);
    return has_non_finite(training.exec, output.flat(), training.count);
  };
  while (bad < head && !is_bad(bad)) ++bad;
  std::int64_t const first = control_all_reduce(training.exec, training.communicator, Operation::min, bad);
  return all[static_cast<std::size_t>(first)];
}

} // namespace

std::string describe_non_finite(DiagnosedTraining const& training, std::span<double const> losses,
                                std::function<void(Index micro_batch)> const& forward) {
  auto const& [exec, communicator, engine, model, count] = training;
  engine.finish();
  auto const is_finite = [](double loss) { return std::isfinite(loss); };
  std::int64_t const bad = std::ranges::find_if_not(losses, is_finite) - losses.begin();
  std::int64_t const micro_batch = control_all_reduce(exec, communicator, Operation::min, bad);
  if (micro_batch < std::ssize(losses)) {
    forward(micro_batch);
    bool const is_mine = !is_finite(losses[static_cast<std::size_t>(micro_batch)]);
    Part const bad_part = first_bad_part(training, is_mine);
    Part const before{PartKind::attention, bad_part.block};
    bool const either = bad_part.kind == PartKind::mlp && !model.keeps_output(before);
    return fmt::format("the first output that is not finite is that of part {}\"{}\"",
                       either ? fmt::format("\"{}\" or ", to_string(before)) : "", to_string(bad_part));
  }
  Index const group = control_all_reduce(exec, communicator, Operation::max, engine.find_non_finite_group(count));
  if (group < 0) return "the norm overflows, all gradients are finite";
  return fmt::format("all outputs are finite, the gradient of \"{}\" is not",
                     engine.table().groups()[static_cast<std::size_t>(group)].name);
}

bool has_non_finite(ExecutionSpace const& exec, ConstStoredVector values, Vector<std::int64_t> count) {
  with_storage(values.storage, [&]<class T>() { count_non_finite<T>(exec, values.as<T>(), count); });
  return copy_to_host(exec, count, "trainstone::train::has_non_finite: the host decides")[0] > 0;
}

} // namespace trainstone
