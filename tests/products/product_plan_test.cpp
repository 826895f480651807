// Distributed products: played on whole numbers by the definitions of the collectives, counted by closed forms, and
// beside the least that any product sends.

#include "products/plan/product.hpp"
#include "products/plan/product_choice.hpp"
#include "products/plan/product_counts.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

using Numbers = std::vector<std::int64_t>;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

std::int64_t value(Operand operand, Index row, Index column) {
  return operand == Operand::a ? (3 * row + 5 * column) % 11 - 4 : (2 * row + 7 * column) % 13 - 5;
}

/// Row by row.
Numbers serial(ProductSize const& size) {
  Numbers c(at(size.m * size.n), 0);
  for (Index i = 0; i < size.m; ++i)
    for (Index j = 0; j < size.n; ++j)
      for (Index l = 0; l < size.k; ++l) c[at(i * size.n + j)] += value(Operand::a, i, l) * value(Operand::b, l, j);
  return c;
}

ProductPlan plan_of(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size, Rank rank) {
  return plan_product(algorithm, grid, size, Topology::one_node(grid.ranks()), rank);
}

// Checks are made in functions: nvcc 13.0 never ends on them in members of a class.

void check_same_exchange(ProductStep const& one, ProductStep const& other) {
  CHECK(other.operand == one.operand);
  CHECK(other.swapped == one.swapped);
  CHECK(other.problem.distance == one.problem.distance);
  CHECK(other.problem.root == one.problem.root);
  CHECK(other.data == one.data);
}

void refuse(Collective collective) { FAIL(to_string(collective) << " is no collective of products"); }

/// All ranks in one process. What ranks hold in no slice of theirs is a number that would be seen.
class Played {
public:
  Played(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size) : m_size(size) {
    for (Rank rank = 0; rank < grid.ranks(); ++rank) {
      m_plans.push_back(plan_of(algorithm, grid, size, rank));
      std::vector<Numbers>& buffers = m_buffers.emplace_back();
      for (Index const elements : m_plans.back().elements) buffers.emplace_back(at(elements), 1000003);
      fill(rank, Operand::a, size.m, size.k);
      fill(rank, Operand::b, size.k, size.n);
    }
    m_next.assign(at(grid.ranks()), 0);
    while (advance()) {
    }
  }

  bool is_over() const {
    for (std::size_t rank = 0; rank < m_plans.size(); ++rank)
      if (m_next[rank] != m_plans[rank].steps.size()) return false;
    return true;
  }

  Numbers result() {
    Numbers c(at(m_size.m * m_size.n), -1);
    for (std::size_t rank = 0; rank < m_plans.size(); ++rank)
      visit(static_cast<Rank>(rank), Operand::c, [&](std::int64_t& number, Index row, Index column) {
        if (row < m_size.m && column < m_size.n) c[at(row * m_size.n + column)] = number;
      });
    return c;
  }

private:
  template <class Visit>
  void visit(Rank rank, Operand operand, Visit const& visit) {
    auto const held = held_block(m_plans[at(rank)], operand);
    if (!held) return;
    for (Index i = 0; i < held->share.size(); ++i) {
      Index const element = held->share.begin + i;
      visit(buffer(rank, held->slice.buffer)[at(held->slice.range.begin + i)],
            held->rows.begin + element / held->columns.size(), held->columns.begin + element % held->columns.size());
    }
  }

  void fill(Rank rank, Operand operand, Index rows, Index columns) {
    visit(rank, operand, [&](std::int64_t& number, Index row, Index column) {
      number = row < rows && column < columns ? value(operand, row, column) : 0;
    });
  }

  Numbers& buffer(Rank rank, ProductBuffer which) { return m_buffers[at(rank)][static_cast<std::size_t>(which)]; }
  std::int64_t* data(Rank rank, ProductSlice const& slice) {
    return buffer(rank, slice.buffer).data() + slice.range.begin;
  }
  ProductStep const* step_of(Rank rank) const {
    ProductPlan const& plan = m_plans[at(rank)];
    return m_next[at(rank)] < plan.steps.size() ? &plan.steps[m_next[at(rank)]] : nullptr;
  }

  /// Whether some rank has made a step.
  bool advance() {
    for (Rank rank = 0; rank < static_cast<Rank>(m_plans.size()); ++rank) {
      ProductStep const* const step = step_of(rank);
      if (!step) continue;
      if (step->act != ProductStep::Act::exchange) {
        alone(rank, *step);
        ++m_next[at(rank)];
        return true;
      }
      if (exchange(rank, *step)) return true;
    }
    return false;
  }

  void alone(Rank rank, ProductStep const& step) {
    if (step.act == ProductStep::Act::copy) {
      std::copy_n(data(rank, step.from), step.from.range.size(), data(rank, step.to));
      return;
    }
    auto const [m, n, k] = step.size;
    std::int64_t const *const a = data(rank, step.a), *const b = data(rank, step.b);
    std::int64_t* const c = data(rank, step.to_c);
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j) {
        std::int64_t sum = step.adds ? c[i * n + j] : 0;
        for (Index l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
        c[i * n + j] = sum;
      }
  }

  /// If all ranks of the line have come to it.
  bool exchange(Rank first, ProductStep const& step) {
    ProductGrid const& grid = m_plans.front().grid;
    std::vector<Rank> line;
    for (Rank rank = 0; rank < grid.ranks(); ++rank)
      if (grid.number(step.line, rank) == grid.number(step.line, first)) line.push_back(rank);
    for (Rank const rank : line) {
      ProductStep const* const other = step_of(rank);
      if (!other || other->act != ProductStep::Act::exchange || other->line != step.line) return false;
      check_same_exchange(step, *other);
    }
    by_definition(line, step);
    for (Rank const rank : line) ++m_next[at(rank)];
    return true;
  }

  void by_definition(std::vector<Rank> const& line, ProductStep const& step) {
    Problem const& problem = step.problem;
    Index const size = step.data.range.size();
    std::vector<Numbers> before;
    for (Rank const rank : line) before.emplace_back(data(rank, step.data), data(rank, step.data) + size);
    Numbers sum(at(size), 0);
    for (Numbers const& one : before)
      for (Index i = 0; i < size; ++i) sum[at(i)] += one[at(i)];
    for (Rank i = 0; i < static_cast<Rank>(line.size()); ++i) {
      std::int64_t* const to = data(line[at(i)], step.data);
      Range const own = problem.partition.range(i);
      switch (problem.collective) {
      case Collective::all_gather:
        for (Rank owner = 0; owner < problem.ranks(); ++owner) {
          Range const block = problem.partition.range(owner);
          std::copy_n(before[at(owner)].data() + block.begin, block.size(), to + block.begin);
        }
        break;
      case Collective::reduce_scatter: std::copy_n(sum.data() + own.begin, own.size(), to + own.begin); break;
      case Collective::broadcast: std::copy_n(before[at(problem.root)].data(), size, to); break;
      case Collective::reduce:
        if (i == problem.root) std::copy_n(sum.data(), size, to);
        break;
      case Collective::send_receive: {
        Index const half = size / 2, from = step.swapped ? half : 0, there = step.swapped ? 0 : half;
        std::copy_n(before[at((i + problem.distance) % problem.ranks())].data() + from, half, to + there);
        break;
      }
      default: refuse(problem.collective);
      }
    }
  }

  ProductSize m_size;
  std::vector<ProductPlan> m_plans;
  std::vector<std::vector<Numbers>> m_buffers;
  std::vector<std::size_t> m_next;
};

/// Every way to distribute a product over so many ranks.
std::vector<std::pair<ProductAlgorithm, ProductGrid>> ways(Rank ranks) {
  std::vector<std::pair<ProductAlgorithm, ProductGrid>> all;
  for (ProductAlgorithm const algorithm :
       {ProductAlgorithm::grid, ProductAlgorithm::summa, ProductAlgorithm::cannon, ProductAlgorithm::replicated})
    for (ProductGrid const& grid : grids_of(ranks)) {
      try {
        require_grid(algorithm, grid);
      } catch (InputError const&) {
        continue;
      }
      all.emplace_back(algorithm, grid);
    }
  return all;
}

Index ceil_lg(Index n) {
  Index result = 0;
  for (Index power = 1; power < n; power *= 2) ++result;
  return result;
}

/// The largest of all ranks.
Traffic busiest(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size) {
  Traffic most;
  for (Rank rank = 0; rank < grid.ranks(); ++rank) {
    Traffic const one = predict_product_traffic(plan_of(algorithm, grid, size, rank), {1, 1});
    most.messages = std::max(most.messages, one.messages);
    most.bytes = std::max(most.bytes, one.bytes);
  }
  return most;
}

void check_busiest(Traffic const& found, Index messages, Index elements) {
  CHECK(found.messages == static_cast<std::uint64_t>(messages));
  CHECK(found.bytes == static_cast<std::uint64_t>(elements));
}

} // namespace

TEST_CASE("every way to distribute a product gives the product", "[products]") {
  for (Rank const ranks : {1, 2, 3, 4, 6, 8, 9, 16})
    for (ProductSize const& size : {ProductSize{8, 12, 4}, {7, 13, 11}, {1, 1, 1}, {2, 3, 1}, {17, 5, 3}, {3, 1, 19}})
      for (auto const& [algorithm, grid] : ways(ranks)) {
        INFO(static_cast<int>(algorithm) << " on " << to_string(grid) << ": " << size.m << " " << size.n << " "
                                         << size.k);
        Played played(algorithm, grid, size);
        CHECK(played.is_over());
        CHECK(played.result() == serial(size));
      }
}

TEST_CASE("the exchanges of products are proved", "[products]") {
  ProductSize const size{7, 13, 11};
  for (Rank const ranks : {4, 6, 8, 9, 16})
    for (auto const& [algorithm, grid] : ways(ranks))
      for (Rank rank = 0; rank < ranks; ++rank)
        for (ProductStep const& step : plan_of(algorithm, grid, size, rank).steps)
          if (step.act == ProductStep::Act::exchange) {
            auto const finding = find_defect(step.problem, make_schedules(step.problem, step.algorithm));
            CHECK(!finding);
          }
}

TEST_CASE("on a box, shares are gathered and sums scattered as the closed form says", "[products]") {
  ProductSize const size{24, 48, 72}; // all extents that the boxes cut divide these
  for (Rank const ranks : {1, 2, 3, 4, 6, 8, 12})
    for (ProductGrid const& grid : grids_of(ranks)) {
      INFO(to_string(grid));
      Index const mk = size.m * size.k, kn = size.k * size.n, mn = size.m * size.n;
      check_busiest(busiest(ProductAlgorithm::grid, grid, size), grid.x + grid.y + grid.z - 3,
                    ((grid.x - 1) * mk + (grid.z - 1) * kn + (grid.y - 1) * mn) / ranks);
    }
}

TEST_CASE("SUMMA sends every rank's blocks to its row and its column", "[products]") {
  for (Rank const q : {1, 2, 3, 4}) {
    ProductSize const size{12 * q, 24 * q, 36 * q};
    Index const all = (q - 1) * (size.m * size.k + size.k * size.n) / (q * q);
    check_busiest(busiest(ProductAlgorithm::summa, {q, 1, q}, size), 2 * (q - 1), all);
  }
}

TEST_CASE("Cannon's algorithm and its layers shift as often as the closed forms say", "[products]") {
  for (Rank const q : {2, 3, 4}) {
    for (ProductSize const& size : {ProductSize{12 * q, 24 * q, 36 * q}, {7, 5, 3}}) {
      ProductSize const padded = padded_size(ProductAlgorithm::cannon, {q, 1, q}, size);
      Index const blocks = (padded.m * padded.k + padded.k * padded.n) / (q * q);
      check_busiest(busiest(ProductAlgorithm::cannon, {q, 1, q}, size), 2 * q, q * blocks);
    }
    CHECK(predict_product_traffic(plan_of(ProductAlgorithm::cannon, {q, 1, q}, {12, 12, 12}, 0), {1, 1}).messages ==
          static_cast<std::uint64_t>(2 * (q - 1))); // rank 0 begins with the right blocks
  }
  for (auto const& [q, c] : {std::pair{2, 2}, {4, 2}, {4, 4}, {6, 3}}) {
    ProductSize const size{12 * q, 24 * q, 36 * q};
    Index const blocks = (size.m * size.k + size.k * size.n) / (q * q);
    Index const first_layer_messages = 2 * ceil_lg(c) + 2 * q / c;
    Traffic most;
    for (Rank rank = 0; rank < q * c * q; ++rank) {
      ProductPlan const plan = plan_of(ProductAlgorithm::replicated, {q, c, q}, size, rank);
      if (plan.grid.place(rank).y > 0) continue; // other layers send their sums, and fewer blocks
      Traffic const one = predict_product_traffic(plan, {1, 1});
      most.messages = std::max(most.messages, one.messages);
      most.bytes = std::max(most.bytes, one.bytes);
    }
    INFO(q << " " << c);
    check_busiest(most, first_layer_messages, (ceil_lg(c) + q / c) * blocks);
  }
}

TEST_CASE("a rank keeps its parts and what the closed form says beside them", "[products]") {
  ProductSize const size{24, 48, 72};
  Index const mk = size.m * size.k, kn = size.k * size.n, mn = size.m * size.n, q = 2;
  ProductGrid const box{2, 3, 4};
  ProductPlan const on_box = plan_of(ProductAlgorithm::grid, box, size, 0);
  Index const own = std::accumulate(on_box.elements.begin(), on_box.elements.end(), Index{0});
  CHECK(own == (mk + kn + mn) / box.ranks() + mk / (box.y * box.z) + kn / (box.x * box.y) + mn / (box.x * box.z));
  CHECK(product_memory(on_box) == own + mn / (box.x * box.z) / box.y * (box.y - 1)); // of the sums
  Index const blocks = (mk + kn + mn) / (q * q), panels = (mk + kn) / (q * q);
  CHECK(product_memory(plan_of(ProductAlgorithm::summa, {2, 1, 2}, size, 0)) == blocks + panels);
  CHECK(product_memory(plan_of(ProductAlgorithm::cannon, {2, 1, 2}, size, 0)) == blocks + panels);
}

TEST_CASE("a cube of ranks sends the least that any product sends", "[products]") {
  for (Rank const edge : {1, 2, 3, 4}) {
    Index const n = 12 * edge;
    Rank const ranks = edge * edge * edge;
    ProductSize const size{n, n, n};
    CHECK(best_grid(size, ranks) == ProductGrid{edge, edge, edge});
    double const sent = static_cast<double>(busiest(ProductAlgorithm::grid, {edge, edge, edge}, size).bytes);
    CHECK(sent == Catch::Approx(product_lower_bound(size, ranks)).epsilon(1e-12));
  }
  // in units of n^2: 64 ranks
  ProductSize const square{64, 64, 64};
  auto const share = [&](ProductAlgorithm algorithm, ProductGrid const& grid) {
    return static_cast<double>(busiest(algorithm, grid, square).bytes) / (64 * 64);
  };
  CHECK(share(ProductAlgorithm::grid, {1, 1, 64}) == Catch::Approx(63.0 / 64));
  CHECK(share(ProductAlgorithm::summa, {8, 1, 8}) == Catch::Approx(0.21875));
  CHECK(share(ProductAlgorithm::cannon, {8, 1, 8}) == Catch::Approx(0.25));
  CHECK(share(ProductAlgorithm::grid, {4, 4, 4}) == Catch::Approx(0.140625));
  for (Rank ranks = 1; ranks <= 64; ++ranks)
    for (ProductSize const& size : {square, ProductSize{4096, 64, 16}, {64, 64, 4096}, {1024, 1024, 4}})
      for (ProductGrid const& grid : grids_of(ranks)) {
        Index const sent =
            (grid.x - 1) * size.m * size.k + (grid.z - 1) * size.k * size.n + (grid.y - 1) * size.m * size.n;
        CHECK(static_cast<double>(sent) / ranks >= product_lower_bound(size, ranks) * (1 - 1e-12));
      }
}

TEST_CASE("grids that an algorithm does not fit are refused with those that it fits", "[products]") {
  CHECK_THROWS_AS(plan_of(ProductAlgorithm::summa, {2, 1, 3}, {4, 4, 4}, 0), InputError);
  try {
    require_grid(ProductAlgorithm::replicated, {4, 1, 2});
    FAIL("accepted");
  } catch (InputError const& error) {
    CHECK_THAT(error.what(), ContainsSubstring("2 x 2 x 2"));
  }
  CHECK_THROWS_AS(plan_of(ProductAlgorithm::grid, {1, 1, 1}, {4, 0, 4}, 0), InputError);
}
