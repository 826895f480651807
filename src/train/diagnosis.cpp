#include "train/diagnosis.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "kernels/norm.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

std::string describe_non_finite(DiagnosedTraining const& training, std::span<double const> losses,
                                std::function<void(Index, LookAtOutput const&)> const& forward) {
  auto const& [exec, communicator, engine, model, count] = training;
  engine.finish();
  auto const is_finite = [](double loss) { return std::isfinite(loss); };
  std::int64_t const bad = std::ranges::find_if_not(losses, is_finite) - losses.begin();
  std::int64_t const micro_batch = control_all_reduce(exec, communicator, Operation::min, bad);
  if (micro_batch < std::ssize(losses)) {
    std::vector<Part> const all = parts(model.layers);
    std::int64_t first = std::ssize(all) - 1; // head is left if no output is bad
    forward(micro_batch, [&](Part part, StoredMatrix output) {
      std::int64_t const number = std::ranges::find(all, part) - all.begin();
      if (number < first && has_non_finite(exec, output.flat(), count)) first = number;
    });
    first = control_all_reduce(exec, communicator, Operation::min, first);
    return fmt::format("the first output that is not finite is that of part \"{}\"",
                       to_string(all[static_cast<std::size_t>(first)]));
  }
  Index const mine = engine.find_non_finite_group(count);
  Index const number = mine < 0 ? -1 : engine.table().groups()[static_cast<std::size_t>(mine)].number;
  Index const group = control_all_reduce(exec, communicator, Operation::max, number);
  if (group < 0) return "the norm overflows, all gradients are finite";
  return fmt::format("all outputs are finite, the gradient of \"{}\" is not",
                     ParameterTable(model, 1).groups()[static_cast<std::size_t>(group)].name);
}

bool has_non_finite(ExecutionSpace const& exec, ConstStoredVector values, Vector<std::int64_t> count) {
  with_storage(values.storage, [&]<class T>() { count_non_finite<T>(exec, values.as<T>(), count); });
  return copy_to_host(exec, count, "trainstone::train::has_non_finite: the host decides")[0] > 0;
}

} // namespace trainstone
