#include "products/plan/product_counts.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/memory_plan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

namespace trainstone {

Schedule schedule_of(ProductPlan const& plan, ProductStep const& step) {
  return make_schedule(step.problem, step.algorithm, plan.grid.index(step.line, plan.rank));
}

Traffic predict_product_traffic(ProductPlan const& plan, ProductBytes const& bytes) {
  Traffic traffic;
  for (ProductStep const& step : plan.steps)
    if (step.act == ProductStep::Act::exchange)
      traffic += predict_traffic(schedule_of(plan, step), step.problem.topology, bytes.of(step.operand),
                                 longest_message(bytes.buffers, bytes.of(step.operand)));
  return traffic;
}

double predict_exchange_seconds(ProductPlan const& plan, ProductBytes const& bytes, MachineModel const& machine) {
  double seconds = 0;
  for (ProductStep const& step : plan.steps) {
    if (step.act == ProductStep::Act::exchange)
      seconds += price(step.problem, step.algorithm, bytes.of(step.operand), machine);
    if (step.act == ProductStep::Act::copy) {
      std::size_t const element = bytes.of(operand_of(step.from.buffer));
      seconds += machine.copy(static_cast<double>(step.from.range.size()) * static_cast<double>(element));
    }
  }
  return seconds;
}

Index product_memory(ProductPlan const& plan) {
  Index scratch = 0;
  for (ProductStep const& step : plan.steps)
    if (step.act == ProductStep::Act::exchange) scratch = std::max(scratch, schedule_of(plan, step).scratch_elements);
  return std::accumulate(plan.elements.begin(), plan.elements.end(), scratch);
}

std::uint64_t predict_product_bytes(ProductPlan const& plan, ProductBytes const& bytes, std::uint64_t gemm_scratch) {
  std::uint64_t sum = memory_footprint(gemm_scratch), scratch = 0, staging = 0;
  for (std::size_t i = 0; i < product_buffers; ++i)
    sum += memory_footprint(static_cast<std::uint64_t>(plan.elements[i]) *
                            bytes.of(operand_of(static_cast<ProductBuffer>(i))));
  for (ProductStep const& step : plan.steps) {
    if (step.act != ProductStep::Act::exchange) continue;
    Schedule const schedule = schedule_of(plan, step);
    std::size_t const element = bytes.of(step.operand);
    scratch = std::max(scratch, static_cast<std::uint64_t>(schedule.scratch_elements) * element);
    staging = std::max(staging, staging_bytes(bytes.buffers, schedule, element));
  }
  return sum + memory_footprint(scratch) + memory_footprint(staging);
}

BusiestProductRank count_busiest(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size) {
  Topology const topology = Topology::one_node(grid.ranks());
  BusiestProductRank most;
  for (Rank rank = 0; rank < grid.ranks(); ++rank) {
    ProductPlan const plan = plan_product(algorithm, grid, size, topology, rank);
    Traffic const sent = predict_product_traffic(plan, {.inputs = 1, .sums = 1});
    most.messages = std::max(most.messages, static_cast<Index>(sent.messages));
    most.sent = std::max(most.sent, static_cast<Index>(sent.bytes));
    most.kept = std::max(most.kept, product_memory(plan));
  }
  return most;
}

double product_lower_bound(ProductSize const& size, Rank ranks) {
  std::array<double, 3> sorted{static_cast<double>(size.m), static_cast<double>(size.n), static_cast<double>(size.k)};
  std::ranges::sort(sorted, std::greater());
  auto const [m, n, k] = sorted;
  double const p = ranks;
  if (p <= m / n) return n * k * (1 - 1 / p);
  if (p <= m * n / (k * k)) return 2 * std::sqrt(m * n * k * k / p) - (m + n) * k / p;
  double const edge = std::cbrt(m * n * k / p); // exact for cubes of whole numbers
  return 3 * edge * edge - (m * k + k * n + m * n) / p;
}

std::pair<Index, Index> grid_cost(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size) {
  Index const mk = size.m * size.k, kn = size.k * size.n, mn = size.m * size.n;
  if (algorithm == ProductAlgorithm::grid)
    return {(grid.x - 1) * mk + (grid.z - 1) * kn + (grid.y - 1) * mn, grid.x + grid.y + grid.z};
  auto const rounds = static_cast<Index>(std::bit_width(static_cast<unsigned>(grid.y) - 1)); // of a binomial tree
  Index const blocks = grid.y == 1 ? grid.x : rounds + grid.x / grid.y;
  return {blocks * grid.y * (mk + kn), 2 * blocks};
}

ProductGrid best_grid(ProductSize const& size, Rank ranks) {
  return std::ranges::min(grids_of(ranks), {},
                          [&](ProductGrid const& grid) { return grid_cost(ProductAlgorithm::grid, grid, size); });
}

} // namespace trainstone
