#include "products/plan/product.hpp"

#include "core/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace trainstone {

namespace {

using Place = ProductGrid::Place;

Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

ProductSlice slice(ProductBuffer buffer, Range const& range) { return {buffer, range}; }
ProductSlice slice(ProductBuffer buffer, Index elements) { return {buffer, {0, elements}}; }

bool is_legal(ProductAlgorithm algorithm, ProductGrid const& grid) {
  switch (algorithm) {
  case ProductAlgorithm::grid: return true;
  case ProductAlgorithm::summa:
  case ProductAlgorithm::cannon: return grid.y == 1 && grid.x == grid.z;
  case ProductAlgorithm::replicated: return grid.x == grid.z && grid.x % grid.y == 0;
  }
  return false;
}

std::string_view name_of(ProductAlgorithm algorithm) {
  switch (algorithm) {
  case ProductAlgorithm::grid: return "grid";
  case ProductAlgorithm::summa: return "summa";
  case ProductAlgorithm::cannon: return "cannon";
  case ProductAlgorithm::replicated: return "2.5d";
  }
  return "unknown";
}

/// Builds the steps of one rank.
class Planner {
public:
  Planner(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size, Topology const& topology,
          Rank rank)
      : m_plan{algorithm, grid, padded_size(algorithm, grid, size), rank, {}, {}},
        m_topology(&topology),
        m_place(grid.place(rank)) {}

  ProductPlan finish() { return std::move(m_plan); }

  /// Agarwal's: blocks are gathered from shares, and sums scattered to shares.
  void on_grid() {
    ProductGrid const& grid = m_plan.grid;
    Index const m = part(m_plan.size.m, grid.z, m_place.z).size(), n = part(m_plan.size.n, grid.x, m_place.x).size(),
                k = part(m_plan.size.k, grid.y, m_place.y).size();
    gather(Operand::a, Line::x, m * k);
    gather(Operand::b, Line::z, k * n);
    room(ProductBuffer::partial_c, m * n);
    multiply({m, n, k}, slice(ProductBuffer::gathered_a, m * k), slice(ProductBuffer::gathered_b, k * n),
             ProductBuffer::partial_c, false);
    Partition const shares = Partition::even(m * n, grid.y);
    Range const own = shares.range(m_place.y);
    ++m_phase;
    exchange(Operand::c, Line::y, Collective::reduce_scatter, Algorithm::direct, shares,
             slice(ProductBuffer::partial_c, m * n));
    room(ProductBuffer::c, own.size());
    ++m_phase;
    copy(slice(ProductBuffer::partial_c, own), slice(ProductBuffer::c, own.size()));
  }

  void summa() {
    Rank const q = m_plan.grid.x;
    Index const m = part(m_plan.size.m, q, m_place.z).size(), n = part(m_plan.size.n, q, m_place.x).size();
    auto const k_of = [&](Rank panel) { return part(m_plan.size.k, q, panel).size(); };
    room(ProductBuffer::a, m * k_of(m_place.x));
    room(ProductBuffer::b, k_of(m_place.z) * n);
    room(ProductBuffer::c, m * n);
    room(ProductBuffer::gathered_a, m * k_of(0)); // the first part is the largest
    room(ProductBuffer::gathered_b, k_of(0) * n);
    for (Rank panel = 0; panel < q; ++panel) {
      Index const k = k_of(panel);
      broadcast(Operand::a, Line::x, panel, m_place.x == panel, m * k);
      broadcast(Operand::b, Line::z, panel, m_place.z == panel, k * n);
      multiply({m, n, k}, slice(ProductBuffer::gathered_a, m * k), slice(ProductBuffer::gathered_b, k * n),
               ProductBuffer::c, panel > 0);
    }
  }

  /// Cannon's, on each of the layers a part of its steps.
  void shifted() {
    Rank const q = m_plan.grid.x, layers = m_plan.grid.y, steps = q / layers;
    Index const m = m_plan.size.m / q, n = m_plan.size.n / q, k = m_plan.size.k / q;
    m_halves = {m * k, k * n};
    room(ProductBuffer::a, 2 * m * k);
    room(ProductBuffer::b, 2 * k * n);
    room(ProductBuffer::c, m * n);
    if (layers > 1) {
      line_exchange(Operand::a, Line::y, Collective::broadcast, m * k, ProductBuffer::a);
      line_exchange(Operand::b, Line::y, Collective::broadcast, k * n, ProductBuffer::b);
    }
    Rank const first = m_place.y * steps; // of this layer's
    shift(Operand::a, Line::x, (m_place.z + first) % q);
    shift(Operand::b, Line::z, (m_place.x + first) % q);
    for (Rank step = 0; step < steps; ++step) {
      if (step > 0) {
        shift(Operand::a, Line::x, 1);
        shift(Operand::b, Line::z, 1);
      }
      multiply({m, n, k}, half(Operand::a), half(Operand::b), ProductBuffer::c, step > 0);
    }
    if (layers > 1) line_exchange(Operand::c, Line::y, Collective::reduce, m * n, ProductBuffer::c);
  }

private:
  static Range part(Index extent, Rank parts, Rank number) { return Partition::even(extent, parts).range(number); }

  void room(ProductBuffer buffer, Index elements) { m_plan.elements[static_cast<std::size_t>(buffer)] = elements; }

  void copy(ProductSlice const& from, ProductSlice const& to) {
    if (!from.range.empty())
      m_plan.steps.push_back({.act = ProductStep::Act::copy, .phase = m_phase, .from = from, .to = to});
  }

  void multiply(ProductSize const& size, ProductSlice const& a, ProductSlice const& b, ProductBuffer c, bool adds) {
    m_plan.steps.push_back({.act = ProductStep::Act::multiply,
                            .phase = ++m_phase,
                            .size = size,
                            .a = a,
                            .b = b,
                            .to_c = slice(c, size.m * size.n),
                            .adds = adds});
  }

  /// Nothing, if the line is one rank.
  ProductStep* exchange(Operand operand, Line line, Collective collective, Algorithm algorithm,
                        Partition const& partition, ProductSlice const& data) {
    if (partition.ranks() == 1) return nullptr;
    ProductStep& step = m_plan.steps.emplace_back();
    step.act = ProductStep::Act::exchange;
    step.phase = m_phase;
    step.operand = operand;
    step.line = line;
    step.data = data;
    step.problem.collective = collective;
    step.problem.partition = partition;
    step.problem.topology = m_topology->of(m_plan.grid.members(line, m_plan.rank));
    step.algorithm = algorithm;
    return &step;
  }

  void gather(Operand operand, Line line, Index block) {
    ++m_phase;
    bool const is_a = operand == Operand::a;
    ProductBuffer const own = is_a ? ProductBuffer::a : ProductBuffer::b,
                        all = is_a ? ProductBuffer::gathered_a : ProductBuffer::gathered_b;
    Partition const shares = Partition::even(block, m_plan.grid.size(line));
    Range const mine = shares.range(m_plan.grid.index(line, m_plan.rank));
    room(own, mine.size());
    room(all, block);
    copy(slice(own, mine.size()), slice(all, mine));
    exchange(operand, line, Collective::all_gather, Algorithm::direct, shares, slice(all, block));
  }

  void broadcast(Operand operand, Line line, Rank root, bool is_root, Index elements) {
    ++m_phase;
    bool const is_a = operand == Operand::a;
    ProductBuffer const own = is_a ? ProductBuffer::a : ProductBuffer::b,
                        panel = is_a ? ProductBuffer::gathered_a : ProductBuffer::gathered_b;
    if (is_root) copy(slice(own, elements), slice(panel, elements));
    if (ProductStep* const step = exchange(operand, line, Collective::broadcast, Algorithm::binomial,
                                           Partition::even(elements, m_plan.grid.size(line)), slice(panel, elements)))
      step->problem.root = root;
  }

  /// Between the layers, whose first one has the user's blocks.
  void line_exchange(Operand operand, Line line, Collective collective, Index elements, ProductBuffer buffer) {
    ++m_phase;
    exchange(operand, line, collective, Algorithm::binomial, Partition::even(elements, m_plan.grid.size(line)),
             slice(buffer, elements));
  }

  void shift(Operand operand, Line line, Rank distance) {
    ++m_phase;
    if (distance == 0) return;
    std::size_t const which = operand == Operand::a ? 0 : 1;
    ProductBuffer const buffer = operand == Operand::a ? ProductBuffer::a : ProductBuffer::b;
    Index const both = 2 * m_halves[which];
    ProductStep* const step = exchange(operand, line, Collective::send_receive, Algorithm::direct,
                                       Partition::even(both, m_plan.grid.size(line)), slice(buffer, both));
    step->problem.distance = distance;
    step->swapped = m_swapped[which];
    m_swapped[which] = !m_swapped[which];
  }

  ProductSlice half(Operand operand) const {
    std::size_t const which = operand == Operand::a ? 0 : 1;
    Index const size = m_halves[which], begin = m_swapped[which] ? size : 0;
    return slice(operand == Operand::a ? ProductBuffer::a : ProductBuffer::b, Range{begin, begin + size});
  }

  ProductPlan m_plan;
  Topology const* m_topology;
  Place m_place;
  int m_phase = 0;
  std::array<Index, 2> m_halves{}; ///< elements of a block of A, and of B
  std::array<bool, 2> m_swapped{}; ///< where the block is: in the second half
};

} // namespace

std::string_view to_string(Operand operand) {
  switch (operand) {
  case Operand::a: return "A";
  case Operand::b: return "B";
  case Operand::c: return "C";
  }
  return "unknown";
}

Operand operand_of(ProductBuffer buffer) {
  switch (buffer) {
  case ProductBuffer::a:
  case ProductBuffer::gathered_a: return Operand::a;
  case ProductBuffer::b:
  case ProductBuffer::gathered_b: return Operand::b;
  case ProductBuffer::c:
  case ProductBuffer::partial_c: return Operand::c;
  }
  return Operand::c;
}

std::string_view to_string(Line line) { return line == Line::x ? "x" : line == Line::y ? "y" : "z"; }

std::string to_string(ProductGrid const& grid) { return fmt::format("{} x {} x {}", grid.x, grid.y, grid.z); }

Rank ProductGrid::index(Line line, Rank rank) const {
  Place const at = place(rank);
  return line == Line::x ? at.x : line == Line::y ? at.y : at.z;
}

Rank ProductGrid::number(Line line, Rank rank) const {
  Place const at = place(rank);
  if (line == Line::x) return at.y + y * at.z;
  return line == Line::y ? at.x + x * at.z : at.x + x * at.y;
}

std::vector<Rank> ProductGrid::members(Line line, Rank rank) const {
  std::vector<Rank> ranks;
  Place place = this->place(rank);
  for (Rank index = 0; index < size(line); ++index) {
    (line == Line::x ? place.x : line == Line::y ? place.y : place.z) = index;
    ranks.push_back(this->rank(place));
  }
  return ranks;
}

void require_grid(ProductAlgorithm algorithm, ProductGrid const& grid) {
  TRAINSTONE_REQUIRE_INPUT(grid.x >= 1 && grid.y >= 1 && grid.z >= 1, "a grid of {}", to_string(grid));
  if (is_legal(algorithm, grid)) return;
  std::vector<std::string> legal;
  for (ProductGrid const& other : grids_of(grid.ranks()))
    if (is_legal(algorithm, other)) legal.push_back(to_string(other));
  throw InputError(fmt::format("{} on a grid of {}; legal grids of {} ranks: {}", name_of(algorithm), to_string(grid),
                               grid.ranks(), legal.empty() ? "none" : fmt::format("{}", fmt::join(legal, ", "))));
}

ProductSize padded_size(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size) {
  if (algorithm == ProductAlgorithm::grid || algorithm == ProductAlgorithm::summa) return size;
  Index const q = grid.x;
  return {q * ceil_div(size.m, q), q * ceil_div(size.n, q), q * ceil_div(size.k, q)};
}

ProductPlan plan_product(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size,
                         Topology const& topology, Rank rank) {
  require_grid(algorithm, grid);
  TRAINSTONE_REQUIRE_INPUT(grid.ranks() == topology.ranks(), "a grid of {} has {} ranks, there are {}", to_string(grid),
                           grid.ranks(), topology.ranks());
  TRAINSTONE_REQUIRE_INPUT(size.m > 0 && size.n > 0 && size.k > 0, "a product of {} x {} x {}", size.m, size.n, size.k);
  Planner planner(algorithm, grid, size, topology, rank);
  switch (algorithm) {
  case ProductAlgorithm::grid: planner.on_grid(); break;
  case ProductAlgorithm::summa: planner.summa(); break;
  case ProductAlgorithm::cannon:
  case ProductAlgorithm::replicated: planner.shifted(); break;
  }
  return planner.finish();
}

std::optional<HeldBlock> held_block(ProductPlan const& plan, Operand operand) {
  ProductGrid const& grid = plan.grid;
  Place const at = grid.place(plan.rank);
  bool const is_grid = plan.algorithm == ProductAlgorithm::grid;
  if (!is_grid && at.y > 0) return std::nullopt;
  ProductSize const& size = plan.size;
  auto const part = [](Index extent, Rank parts, Rank number) { return Partition::even(extent, parts).range(number); };
  Rank const k_parts = is_grid ? grid.y : grid.x;
  HeldBlock held;
  Line line = Line::x;
  switch (operand) {
  case Operand::a:
    held.rows = part(size.m, grid.z, at.z);
    held.columns = part(size.k, k_parts, is_grid ? at.y : at.x);
    held.slice.buffer = ProductBuffer::a;
    break;
  case Operand::b:
    held.rows = part(size.k, k_parts, is_grid ? at.y : at.z);
    held.columns = part(size.n, grid.x, at.x);
    held.slice.buffer = ProductBuffer::b;
    line = Line::z;
    break;
  case Operand::c:
    held.rows = part(size.m, grid.z, at.z);
    held.columns = part(size.n, grid.x, at.x);
    held.slice.buffer = ProductBuffer::c;
    line = Line::y;
    break;
  }
  Index const block = held.rows.size() * held.columns.size();
  held.share = is_grid ? part(block, grid.size(line), grid.index(line, plan.rank)) : Range{0, block};
  held.slice.range = {0, held.share.size()};
  return held;
}

std::vector<ProductGrid> grids_of(Rank ranks) {
  std::vector<ProductGrid> grids;
  for (Rank z = 1; z <= ranks; ++z)
    for (Rank y = 1; ranks % z == 0 && y <= ranks / z; ++y)
      if (ranks / z % y == 0) grids.push_back({ranks / z / y, y, z});
  return grids;
}

} // namespace trainstone
