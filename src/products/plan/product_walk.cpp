#include "products/plan/product_walk.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <tuple>
#include <utility>

namespace trainstone {

namespace {

constexpr Rank most_ranks = 64; // more nobody reads; so many terms are bits of a word

/// An element of an operand, by name.
struct Cell {
  Index row = -1, column = -1; ///< -1: nothing
  std::uint64_t terms = 0;     ///< of C: bit b is block b of the inner dimension
  bool is_zero = false;        ///< a sum of no terms, where a rank has nothing of the inner dimension
  bool is_empty() const { return row < 0; }
  bool is_same(Cell const& other) const { return row == other.row && column == other.column; }
};
using Cells = std::vector<Cell>;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// All ranks and what lies in their buffers.
class Play {
public:
  explicit Play(std::vector<ProductPlan> plans) : m_plans(std::move(plans)) {
    for (ProductPlan const& plan : m_plans) {
      std::vector<Cells>& buffers = m_buffers.emplace_back();
      for (Index const elements : plan.elements) buffers.emplace_back(at(elements));
      for (Operand const operand : {Operand::a, Operand::b}) name(plan.rank, operand);
    }
    ProductPlan const& first = m_plans.front();
    m_inner = Partition::even(first.size.k, first.algorithm == ProductAlgorithm::grid ? first.grid.y : first.grid.x);
    m_inner_blocks = std::min(Index{m_inner.ranks()}, m_inner.elements()); // the others are empty
  }

  std::vector<ProductPlan> const& plans() const { return m_plans; }
  Index inner_blocks() const { return m_inner_blocks; }
  ProductGrid const& grid() const { return m_plans.front().grid; }

  /// Everything of this phase: copies come before exchanges. \return what it was; empty: nothing
  std::string play(int phase) {
    std::string what;
    std::map<std::tuple<Line, Rank>, bool> exchanged;
    for (Rank rank = 0; rank < std::ssize(m_plans); ++rank)
      for (ProductStep const& step : m_plans[at(rank)].steps) {
        if (step.phase != phase) continue;
        if (step.act == ProductStep::Act::copy) copy(rank, step);
        if (step.act == ProductStep::Act::multiply) multiply(rank, step);
        if (step.act == ProductStep::Act::multiply) what = "multiply";
      }
    for (Rank rank = 0; rank < std::ssize(m_plans); ++rank)
      for (ProductStep const& step : m_plans[at(rank)].steps) {
        if (step.phase != phase || step.act != ProductStep::Act::exchange) continue;
        bool& done = exchanged[{step.line, grid().number(step.line, rank)}];
        if (!done) exchange(grid().members(step.line, rank), step);
        done = true;
        what = words_of(step);
      }
    return what;
  }

  std::vector<HeldPart> held(Rank rank) const {
    std::map<std::tuple<Operand, Index, Index, std::uint64_t>, std::map<std::pair<Index, Index>, int>> found;
    for (std::size_t buffer = 0; buffer < product_buffers; ++buffer)
      for (Cell const& cell : m_buffers[at(rank)][buffer])
        if (!cell.is_empty()) {
          Operand const operand = operand_of(static_cast<ProductBuffer>(buffer));
          auto const [rows, columns] = cuts(operand);
          found[{operand, rows.block_of(cell.row), columns.block_of(cell.column), cell.terms}]
               [{cell.row, cell.column}] = 1;
        }
    std::vector<HeldPart> parts;
    for (auto const& [key, cells] : found) {
      auto const& [operand, row, column, terms] = key;
      auto const [rows, columns] = cuts(operand);
      HeldPart part{operand, row, column, std::ssize(cells), rows.size(row) * columns.size(column), {}};
      for (Index term = 0; term < m_inner_blocks; ++term)
        if (terms >> term & 1) part.terms.push_back(term);
      parts.push_back(std::move(part));
    }
    return parts;
  }

  void require_complete() const {
    std::uint64_t const all = m_inner_blocks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << m_inner_blocks) - 1;
    Index cells = 0;
    for (Rank rank = 0; rank < std::ssize(m_plans); ++rank) {
      auto const held = held_block(m_plans[at(rank)], Operand::c);
      if (!held) continue;
      for (Cell const& cell : slice(rank, held->slice)) {
        TRAINSTONE_REQUIRE(!cell.is_empty() && cell.terms == all,
                           "rank {} ends with an element of C that is not complete", rank);
        ++cells;
      }
    }
    ProductSize const& size = m_plans.front().size;
    TRAINSTONE_REQUIRE(cells == size.m * size.n, "{} elements of C of {}", cells, size.m * size.n);
  }

private:
  /// Even blocks of an extent.
  struct Cut {
    Partition partition;
    Index size(Index block) const { return partition.size(static_cast<Rank>(block)); }
    Index block_of(Index element) const {
      Index block = 0;
      while (!partition.range(static_cast<Rank>(block)).overlaps({element, element + 1})) ++block;
      return block;
    }
  };
  std::pair<Cut, Cut> cuts(Operand operand) const {
    ProductSize const& size = m_plans.front().size;
    Cut const m{Partition::even(size.m, grid().z)}, n{Partition::even(size.n, grid().x)}, k{m_inner};
    if (operand == Operand::a) return {m, k};
    return operand == Operand::b ? std::pair{k, n} : std::pair{m, n};
  }

  std::span<Cell> slice(Rank rank, ProductSlice const& slice) {
    return std::span(m_buffers[at(rank)][static_cast<std::size_t>(slice.buffer)])
        .subspan(at(slice.range.begin), at(slice.range.size()));
  }
  std::span<Cell const> slice(Rank rank, ProductSlice const& slice) const {
    return std::span(m_buffers[at(rank)][static_cast<std::size_t>(slice.buffer)])
        .subspan(at(slice.range.begin), at(slice.range.size()));
  }

  void name(Rank rank, Operand operand) {
    auto const held = held_block(m_plans[at(rank)], operand);
    if (!held) return;
    Index element = held->share.begin;
    for (Cell& cell : slice(rank, held->slice)) {
      cell = {held->rows.begin + element / held->columns.size(), held->columns.begin + element % held->columns.size()};
      ++element;
    }
  }

  void copy(Rank rank, ProductStep const& step) {
    std::ranges::copy(slice(rank, step.from), slice(rank, step.to).begin());
  }

  void multiply(Rank rank, ProductStep const& step) {
    auto const [m, n, k] = step.size;
    std::span<Cell const> const a = slice(rank, step.a), b = slice(rank, step.b);
    std::span<Cell> const c = slice(rank, step.to_c);
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j) {
        Cell sum = step.adds ? c[at(i * n + j)] : Cell{.is_zero = true};
        std::uint64_t terms = 0;
        for (Index l = 0; l < k; ++l) {
          Cell const &left = a[at(i * k + l)], &right = b[at(l * n + j)];
          Cell const product{left.row, right.column};
          TRAINSTONE_REQUIRE(!left.is_empty() && left.column == right.row && (sum.is_zero || sum.is_same(product)),
                             "rank {} multiplies elements that do not belong together", rank);
          sum = {product.row, product.column, sum.terms};
          terms |= std::uint64_t{1} << cuts(Operand::a).second.block_of(left.column);
        }
        c[at(i * n + j)] = with_terms(sum, terms, rank);
      }
  }

  static Cell with_terms(Cell cell, std::uint64_t terms, Rank rank) {
    TRAINSTONE_REQUIRE((cell.terms & terms) == 0, "rank {} adds a term of C twice", rank);
    cell.terms |= terms;
    return cell;
  }

  static std::string words_of(ProductStep const& step) {
    Collective const collective = step.problem.collective;
    std::string const root = collective == Collective::broadcast ? fmt::format(" from {}", step.problem.root) : "";
    return fmt::format("{} along {}: {} {}{}", to_string(step.operand), to_string(step.line), to_string(collective),
                       to_string(step.algorithm), root);
  }

  /// By the definition of the collective (comm/schedule/problem.hpp).
  void exchange(std::vector<Rank> const& line, ProductStep const& step) {
    Problem const& problem = step.problem;
    std::vector<Cells> before;
    for (Rank const rank : line) {
      std::span<Cell const> const data = std::as_const(*this).slice(rank, step.data);
      before.emplace_back(data.begin(), data.end());
    }
    for (Rank i = 0; i < std::ssize(line); ++i) {
      std::span<Cell> const data = slice(line[at(i)], step.data);
      switch (problem.collective) {
      case Collective::all_gather:
        for (Rank owner = 0; owner < problem.ranks(); ++owner)
          take(data, before[at(owner)], problem.partition.range(owner), problem.partition.range(owner).begin);
        break;
      case Collective::broadcast: take(data, before[at(problem.root)], {0, std::ssize(data)}, 0); break;
      case Collective::send_receive: {
        Index const half = std::ssize(data) / 2, from = step.swapped ? half : 0, to = half - from;
        take(data, before[at(problem.source_of(i))], {from, from + half}, to);
        std::ranges::fill(data.subspan(at(from), at(half)), Cell()); // it has been given away
        break;
      }
      case Collective::reduce_scatter: sum(data, before, problem.partition.range(i), line[at(i)]); break;
      case Collective::reduce:
        sum(data, before, i == problem.root ? Range{0, std::ssize(data)} : Range{0, 0}, line[at(i)]);
        break;
      default: TRAINSTONE_REQUIRE(false, "products make no {}", to_string(problem.collective));
      }
    }
  }

  static void take(std::span<Cell> data, Cells const& from, Range const& range, Index to) {
    std::copy_n(from.begin() + range.begin, range.size(), data.begin() + to);
  }

  /// Keeps the sum of a range, and nothing else.
  static void sum(std::span<Cell> data, std::vector<Cells> const& all, Range const& range, Rank rank) {
    std::ranges::fill(data, Cell());
    for (Index i = range.begin; i < range.end; ++i) {
      Cell cell = all.front()[at(i)];
      for (std::size_t other = 1; other < all.size(); ++other) {
        Cell const& more = all[other][at(i)];
        bool const are_there = (cell.is_zero || !cell.is_empty()) && (more.is_zero || !more.is_empty());
        TRAINSTONE_REQUIRE(are_there && (cell.is_zero || more.is_zero || cell.is_same(more)),
                           "rank {} adds elements that do not belong together", rank);
        cell = with_terms(cell.is_zero ? Cell{more.row, more.column, 0, more.is_zero} : cell, more.terms, rank);
      }
      data[at(i)] = cell;
    }
  }

  std::vector<ProductPlan> m_plans;
  std::vector<std::vector<Cells>> m_buffers;
  Index m_inner_blocks = 1;
  Partition m_inner = Partition::even(0, 1);
};

} // namespace

ProductSize small_product_size(ProductGrid const& grid) {
  return {Index{grid.z} * grid.y, Index{grid.x} * grid.z, Index{grid.y} * grid.x};
}

ProductWalk walk_product(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size) {
  TRAINSTONE_REQUIRE_INPUT(grid.ranks() <= most_ranks, "a grid of {} has {} ranks; at most {} are explained",
                           to_string(grid), grid.ranks(), most_ranks);
  std::vector<ProductPlan> plans;
  for (Rank rank = 0; rank < grid.ranks(); ++rank)
    plans.push_back(plan_product(algorithm, grid, size, Topology::one_node(grid.ranks()), rank));
  return walk_plans(std::move(plans));
}

ProductWalk walk_plans(std::vector<ProductPlan> plans) {
  Play play(std::move(plans));
  ProductPlan const& first = play.plans().front();
  ProductGrid const grid = first.grid;
  ProductWalk walk{first.algorithm, grid, first.size, play.inner_blocks(), {}};
  auto const note = [&](std::string const& what) {
    ProductMoment& moment = walk.moments.emplace_back(ProductMoment{what, {}});
    for (Rank rank = 0; rank < grid.ranks(); ++rank) moment.held.push_back(play.held(rank));
  };
  note("start");
  int phases = 0;
  for (ProductPlan const& plan : play.plans())
    for (ProductStep const& step : plan.steps) phases = std::max(phases, step.phase);
  for (int phase = 1; phase <= phases; ++phase)
    if (std::string const what = play.play(phase); !what.empty()) note(what);
  play.require_complete();
  return walk;
}

} // namespace trainstone
