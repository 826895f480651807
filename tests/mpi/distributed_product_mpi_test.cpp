// Distributed products on MPI: exact on whole numbers, sent and kept as their plans say, and as closed forms say.

#include "comm/execution/communicator.hpp"
#include "comm/execution/control.hpp"
#include "core/memory.hpp"
#include "products/execution/distributed_product.hpp"
#include "products/plan/product_choice.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <vector>

using namespace trainstone;

namespace {

/// Whole numbers without a short period in either direction.
float value_of(Operand operand, Index row, Index column) {
  Index const mixed = operand == Operand::a ? row * row + 3 * row * column + 5 * column * column
                                            : 2 * row * row + 7 * row * column + column * column + 1;
  return static_cast<float>(mixed % 17 % 7 - 3);
}

float product(ProductSize const& size, Index row, Index column) {
  float sum = 0;
  for (Index inner = 0; inner < size.k; ++inner)
    sum += value_of(Operand::a, row, inner) * value_of(Operand::b, inner, column);
  return sum;
}

/// The elements of this rank's part of C that are not exact.
Index wrong_elements(DistributedProduct const& distributed, ProductSize const& size) {
  std::vector<float> const result = distributed.result();
  auto const held = held_block(distributed.plan(), Operand::c);
  if (!held) return std::ssize(result);
  if (std::ssize(result) != held->share.size()) return held->share.size();
  Index wrong = 0;
  for (Index i = 0; i < held->share.size(); ++i) {
    Index const element = held->share.begin + i, columns = held->columns.size();
    Index const row = held->rows.begin + element / columns, column = held->columns.begin + element % columns;
    float const expected = row < size.m && column < size.n ? product(size, row, column) : 0;
    wrong += result[static_cast<std::size_t>(i)] != expected;
  }
  return wrong;
}

void check_product(Communicator& world, ProductChoice const& way, ProductSize const& size, Storage storage) {
  INFO(way.name << " on " << to_string(way.grid) << ": " << size.m << " " << size.n << " " << size.k << " "
                << to_string(storage));
  ProductPlan const plan = plan_product(way.algorithm, way.grid, size, world.topology(), world.rank());
  ProductBytes const bytes{bytes_per_value(storage), sizeof(float), world.buffers()};
  MemoryLedger ledger;
  DistributedProduct distributed(ExecutionSpace(), world, ledger, plan, storage, GemmProvider::kokkos);
  CHECK(ledger.high_water_total() ==
        predict_product_bytes(plan, bytes, product_gemm_scratch(plan, storage, GemmProvider::kokkos)));
  for (int repeat = 0; repeat < 2; ++repeat) {
    distributed.fill([&](Operand operand, Index row, Index column) {
      Index const rows = operand == Operand::a ? size.m : size.k, columns = operand == Operand::a ? size.k : size.n;
      return row < rows && column < columns ? value_of(operand, row, column) : 0;
    });
    comm_counters() = {};
    distributed.run();
    CHECK(comm_counters().total(Purpose::training) == predict_product_traffic(plan, bytes));
    CHECK(wrong_elements(distributed, size) == 0);
  }
}

void check_all(Communicator& world, Storage storage) {
  for (ProductSize const& size : {ProductSize{16, 24, 32}, {7, 13, 40}, {1, 2, 1}, {17, 3, 29}})
    for (std::string_view const name : product_names())
      for (ProductGrid const& grid : legal_product_grids(name, world.size())) {
        ProductChoice const way = choose_products(size, world.size(), {std::string(name)}, grid).choices.at(0);
        check_product(world, way, size, storage);
      }
}

Index ceil_lg(Index n) {
  Index result = 0;
  for (Index power = 1; power < n; power *= 2) ++result;
  return result;
}

struct Sent {
  Index messages, elements;
};

/// Of the busiest rank, where all extents can be divided.
Sent closed_form(ProductChoice const& way, ProductSize const& size) {
  auto const [x, y, z] = way.grid;
  Index const mk = size.m * size.k, kn = size.k * size.n, mn = size.m * size.n, p = way.grid.ranks(), q = x, c = y;
  switch (way.algorithm) {
  case ProductAlgorithm::grid: return {x + y + z - 3, ((x - 1) * mk + (z - 1) * kn + (y - 1) * mn) / p};
  case ProductAlgorithm::summa: return {2 * (q - 1), (q - 1) * (mk + kn) / p};
  case ProductAlgorithm::cannon: return q == 1 ? Sent{0, 0} : Sent{2 * q, q * (mk + kn) / p};
  case ProductAlgorithm::replicated: return {2 * ceil_lg(c) + 2 * q / c, (ceil_lg(c) + q / c) * (mk + kn) * c / p};
  }
  return {0, 0};
}

} // namespace

TEST_CASE("distributed products are exact, and send and keep what their plans say", "[mpi][products]") {
  auto const storage = GENERATE(Storage::fp32, Storage::bf16);
  Communicator world = Communicator::world();
  if (host_reaches_memory) check_all(world, storage);
  world.use_buffers(MessageBuffers::staged, ExecutionSpace());
  check_all(world, storage);
}

TEST_CASE("the busiest rank of a distributed product sends what the closed forms say, on a cube the least of all",
          "[mpi][products]") {
  Communicator world = test::world();
  Index const unit = Index{4} * world.size(); // whatever the grid is, blocks and shares are equal
  for (ProductSize const& size : {ProductSize{unit, 2 * unit, 3 * unit}, {unit, unit, unit}})
    for (std::string_view const name : product_names())
      for (ProductGrid const& grid : legal_product_grids(name, world.size())) {
        ProductChoice const way = choose_products(size, world.size(), {std::string(name)}, grid).choices.at(0);
        INFO(name << " on " << to_string(grid));
        ProductPlan const plan = plan_product(way.algorithm, grid, size, world.topology(), world.rank());
        MemoryLedger ledger;
        DistributedProduct distributed(ExecutionSpace(), world, ledger, plan, Storage::fp32, GemmProvider::kokkos);
        distributed.fill(value_of);
        comm_counters() = {};
        distributed.run();
        Traffic const mine = comm_counters().total(Purpose::training);
        std::vector<Index> const messages = all_gather_values(world, static_cast<Index>(mine.messages)),
                                 sent = all_gather_values(world, static_cast<Index>(mine.bytes / sizeof(float)));
        Sent const expected = closed_form(way, size);
        CHECK(std::ranges::max(messages) == expected.messages);
        CHECK(std::ranges::max(sent) == expected.elements);
        bool const is_cube = grid.x == grid.y && grid.y == grid.z && size.m == size.n;
        auto const least = product_lower_bound(size, world.size());
        if (name == "3d" && is_cube) CHECK(static_cast<double>(std::ranges::max(sent)) == least);
        CHECK(static_cast<double>(std::ranges::max(sent)) >= least);
      }
}
