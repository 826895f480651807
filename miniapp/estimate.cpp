// trainstone estimate: what a run would need per rank, item by item, without running or launching anything.

#include "commands.hpp"

#include "report/lecture_models.hpp"
#include "report/output.hpp"
#include "train/extreme_plans.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

void print_memory(RunPlan const& plan) {
  fmt::print("memory per rank, bytes, of rank {}: none needs more\n", plan.rank);
  for (MemoryCategory category : memory_categories) {
    fmt::print("  {:<36} {:>16}\n", to_string(category), plan.memory_bytes()[category]);
    for (MemoryItem const& item : plan.memory)
      if (item.category == category && item.name != to_string(category))
        fmt::print("    {:<34} {:>16}\n", item.name, item.bytes);
  }
  fmt::print("  {:<36} {:>16}  ({})\n", "total", plan.memory_bytes().total(), mebibytes(plan.memory_bytes().total()));
}

void print_parameters(RunPlan const& plan) {
  std::int64_t const padded = plan.table.size();
  fmt::print("parameters {} of the model, {} stored ({} for padding of vocabulary and groups)\n",
             plan.table.model_parameters(), padded, padded - plan.table.model_parameters());
  for (ParameterGroup const& group : plan.table.groups())
    fmt::print("  {:<36} {:>16}  padded to {}\n", group.name, group.size, group.padded);
}

void print_work(RunPlan const& plan) {
  fmt::print("sent per step by rank {}: none sends more\n", plan.rank);
  for (auto const* rows : {&plan.sent, &plan.control})
    for (TrafficRow const& row : *rows)
      fmt::print("  {:<52} {:>14} bytes in {} messages\n", row.name, row.traffic.bytes, row.traffic.messages);
  if (plan.replica_check_every > 0)
    fmt::print("  {:<52} {:>14} bytes in {} messages, every {} steps\n", "control: hash of all parameters",
               plan.replica_check.bytes, plan.replica_check.messages, plan.replica_check_every);
  fmt::print("FLOP per step and rank\n");
  fmt::print("  {:<36} {:>16}\n", "GEMM", plan.step_flops.gemm);
  fmt::print("  {:<36} {:>16}\n", "attention", plan.step_flops.attention);
  double const tokens = static_cast<double>(plan.accumulation * plan.shape.rows());
  fmt::print("  {:<36} {:>16.4e}  (6 x parameters x tokens: {:.4e})\n", "sum",
             static_cast<double>(plan.step_flops.total()),
             6.0 * static_cast<double>(plan.table.model_parameters()) * tokens);
  fmt::print("kernels per step and rank {:>41}\n", plan.step_launches + plan.update_launches);
}

} // namespace

int estimate(EstimateOptions const& options) {
  if (!options.lecture.empty()) return estimate_lecture(options);
  TRAINSTONE_REQUIRE_INPUT(!options.common.deck.path.empty(),
                           "estimate needs a DECK, or --lecture collectives|zero|models|capability");
  TRAINSTONE_REQUIRE_INPUT(!options.size && options.machine_file.empty(), "--size and --machine belong to --lecture");
  std::int64_t const ranks = options.ranks.value_or(1);
  Deck const deck = read_deck(options.common.deck);
  RunConfig const config = resolve(deck, ranks);
  std::int64_t const nodes = std::max<std::int64_t>(config.comm.emulated_nodes, 1);
  auto const [plan, busiest] =
      plan_extremes(config, Topology::block(static_cast<Rank>(ranks), static_cast<int>(nodes)));
  fmt::print("deck {} on {} ranks: micro-batch {} x accumulation {} x ranks {} = {} samples of {} tokens, gemm {}\n",
             deck_label(deck), ranks, config.batch.micro, config.batch.accumulation, ranks, config.batch.global,
             config.data.sequence, to_string(plan.gemm));
  print_parameters(plan);
  print_memory(plan);
  print_work(busiest);
  std::uint64_t const needed = plan.memory_bytes().total() - plan.pinned_bytes;
  auto const bytes = static_cast<double>(needed);
  fmt::print("cards that hold it, of 16, 32, 40 and 80 GB: {}; of as many GiB: {}\n", cards_text(bytes, gigabyte),
             cards_text(bytes, gibibyte));
  if (!options.device_memory) return 0;
  bool const fits = needed <= *options.device_memory;
  fmt::print("{}: {} needed, {} given\n", fits ? "FITS" : "DOES NOT FIT", mebibytes(needed),
             mebibytes(*options.device_memory));
  return fits ? 0 : static_cast<int>(ExitCode::does_not_fit);
}

} // namespace trainstone
