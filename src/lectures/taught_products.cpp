#include "lectures/taught_products.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"
#include "products/plan/product_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace trainstone {

namespace {

/// Extents as numbers, for closed forms.
struct Areas {
  double mk, kn, mn;
  explicit Areas(ProductSize const& size)
      : mk(static_cast<double>(size.m) * static_cast<double>(size.k)),
        kn(static_cast<double>(size.k) * static_cast<double>(size.n)),
        mn(static_cast<double>(size.m) * static_cast<double>(size.n)) {}
  double all() const { return mk + kn + mn; }
};

double lg(Rank ranks) { return std::ceil(std::log2(ranks)); }

double box_sent(ProductGrid const& grid, Areas const& area) {
  return ((grid.x - 1) * area.mk + (grid.z - 1) * area.kn + (grid.y - 1) * area.mn) / grid.ranks();
}

double layers_sent(ProductGrid const& grid, Areas const& area) {
  double const shifts = static_cast<double>(grid.x) / grid.y;
  return (lg(grid.y) + shifts) * (area.mk + area.kn) * grid.y / grid.ranks();
}

TaughtProductRow box_row(std::string const& arrangement, ProductGrid const& grid, Areas const& area) {
  auto const [x, y, z] = grid;
  double const p = grid.ranks();
  return {.arrangement = arrangement,
          .grid = grid,
          .messages_formula = "x+y+z-3",
          .sent_formula = "((x-1)mk + (z-1)kn + (y-1)mn)/P",
          .kept_formula = "(mk + kn + y mn)/P + mk/(yz) + kn/(xy) + mn/(xz)",
          .messages = x + y + z - 3.0,
          .sent = box_sent(grid, area),
          .kept = (area.mk + area.kn + y * area.mn) / p + area.mk / (y * z) + area.kn / (x * y) + area.mn / (x * z)};
}

TaughtProductRow summa_row(Rank q, Areas const& area) {
  double const p = static_cast<double>(q) * q;
  return {.arrangement = "2-D, SUMMA",
          .grid = {q, 1, q},
          .messages_formula = "2(q-1)",
          .sent_formula = "(q-1)(mk + kn)/P",
          .kept_formula = "(2mk + 2kn + mn)/P",
          .messages = 2.0 * (q - 1),
          .sent = (q - 1) * (area.mk + area.kn) / p,
          .kept = (2 * area.mk + 2 * area.kn + area.mn) / p};
}

TaughtProductRow cannon_row(Rank q, Areas const& area) {
  TaughtProductRow row = summa_row(q, area);
  double const p = static_cast<double>(q) * q;
  row.arrangement = "2-D, Cannon";
  row.messages_formula = "2q";
  row.sent_formula = "q(mk + kn)/P";
  row.messages = q == 1 ? 0 : 2.0 * q;
  row.sent = q == 1 ? 0 : q * (area.mk + area.kn) / p;
  return row;
}

/// c layers of q x q ranks.
TaughtProductRow layers_row(ProductGrid const& grid, Areas const& area) {
  double const c = grid.y, p = grid.ranks();
  return {.arrangement = "2.5-D",
          .grid = grid,
          .messages_formula = "2lg c + 2q/c",
          .sent_formula = "(lg c + q/c)(mk + kn)c/P",
          .kept_formula = "2(mk + kn + mn)c/P",
          .messages = 2 * lg(grid.y) + 2 * grid.x / c,
          .sent = layers_sent(grid, area),
          .kept = 2 * area.all() * c / p};
}

std::optional<Rank> root_of(Rank ranks) {
  auto const q = static_cast<Rank>(std::lround(std::sqrt(ranks)));
  return q * q == ranks ? std::optional(q) : std::nullopt;
}

/// With more than one layer, and the least sent.
std::optional<ProductGrid> best_layers(Rank ranks, Areas const& area) {
  std::optional<ProductGrid> best;
  for (Rank c = 2; c <= ranks; ++c) {
    if (ranks % c != 0) continue;
    auto const q = root_of(ranks / c);
    if (!q || *q % c != 0) continue;
    ProductGrid const grid{*q, c, *q};
    if (!best || layers_sent(grid, area) < layers_sent(*best, area)) best = grid;
  }
  return best;
}

ProductGrid best_box(Rank ranks, Areas const& area) {
  return std::ranges::min(grids_of(ranks), {}, [&](ProductGrid const& grid) { return box_sent(grid, area); });
}

TaughtProduct product_of(std::string const& what, ProductSize const& asked, Rank ranks) {
  ProductSize size = asked;
  for (Index* const extent : {&size.m, &size.n, &size.k}) *extent = (*extent + ranks - 1) / ranks * ranks;
  Areas const area(size);
  TaughtProduct product{what, asked, size, product_lower_bound(size, ranks), {}};
  auto const add = [&](ProductAlgorithm algorithm, TaughtProductRow row) {
    BusiestProductRank const counted = count_busiest(algorithm, row.grid, size);
    row.counted_messages = counted.messages;
    row.counted_sent = counted.sent;
    row.counted_kept = counted.kept;
    product.rows.push_back(std::move(row));
  };
  add(ProductAlgorithm::grid, box_row("1-D, rows of C", {1, 1, ranks}, area));
  add(ProductAlgorithm::grid, box_row("1-D, columns of C", {ranks, 1, 1}, area));
  add(ProductAlgorithm::grid, box_row("1-D, inner", {1, ranks, 1}, area));
  if (auto const q = root_of(ranks)) {
    add(ProductAlgorithm::summa, summa_row(*q, area));
    add(ProductAlgorithm::cannon, cannon_row(*q, area));
  }
  if (auto const grid = best_layers(ranks, area)) add(ProductAlgorithm::replicated, layers_row(*grid, area));
  add(ProductAlgorithm::grid, box_row("3-D, best box", best_box(ranks, area), area));
  return product;
}

TaughtShareRow share_row(Rank ranks) {
  Areas const unit(ProductSize{1, 1, 1});
  TaughtShareRow row{
      .ranks = ranks, .line = box_sent({1, 1, ranks}, unit), .box = box_sent(best_box(ranks, unit), unit)};
  row.bound = product_lower_bound({1, 1, 1}, ranks);
  if (auto const q = root_of(ranks)) {
    row.summa = summa_row(*q, unit).sent;
    row.cannon = cannon_row(*q, unit).sent;
  }
  if (auto const grid = best_layers(ranks, unit)) row.layers = layers_sent(*grid, unit);
  return row;
}

/// What a rank sends in an all-reduce of so many elements.
Index all_reduced(Rank ranks, Index elements) {
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(elements, ranks));
  return static_cast<Index>(count(problem, make_schedules(problem, Algorithm::ring), 1).busiest.bytes);
}

/// Forward and backward of a block: 4 all-reduces over x, and over y those of qkv, of attention's and of the MLP's two
/// products. Weights are split over x and y in turns, so no activation is sent between two layers.
TensorGridRow tensor_grid_row(Rank x, Rank y) {
  TensorGridRow row{.x = x, .y = y};
  row.exact = (8.0 * (x - 1) + 24.0 * (y - 1)) / (x * y);
  Index const features = Index{x} * y * x * y; // tokens times channels; all blocks are equal
  Index sent = 4 * all_reduced(x, features / y);
  for (Index const width : {3, 1, 4, 4}) sent += all_reduced(y, width * features / x);
  row.counted = static_cast<double>(sent) / static_cast<double>(features);
  return row;
}

std::vector<TensorGridRow> tensor_grids_of(Rank ranks) {
  std::vector<TensorGridRow> rows;
  for (Rank y = 1; y <= ranks; ++y)
    if (ranks % y == 0) rows.push_back(tensor_grid_row(ranks / y, y));
  std::ranges::min_element(rows, {}, &TensorGridRow::exact)->is_best = true;
  return rows;
}

} // namespace

TaughtProducts compare_taught_products(std::int64_t asked) {
  TRAINSTONE_REQUIRE_INPUT(asked >= 1 && asked <= most_product_ranks,
                           "--ranks {}: products are compared on 1 to {} ranks", asked, most_product_ranks);
  auto const ranks = static_cast<Rank>(asked);
  constexpr Index square = 4096, tokens = 2048, channels = 12288; // GPT-3's sequence and hidden dimension
  ProductGrid const one{1, 1, 1};
  Areas const unit(ProductSize{1, 1, 1});
  TaughtProducts lecture{.ranks = ranks,
                         .formulas = {box_row("box, 1-D or 3-D", one, unit), summa_row(1, unit), cannon_row(1, unit),
                                      layers_row(one, unit)},
                         .products = {},
                         .shares = {},
                         .tensor_grids = {}};
  lecture.products = {product_of("a square product", {square, square, square}, ranks),
                      product_of("into the MLP of GPT-3", {tokens, 4 * channels, channels}, ranks),
                      product_of("out of the MLP of GPT-3", {tokens, channels, 4 * channels}, ranks)};
  for (Rank const p : {4, 16, 64, 256, 1024, 4096}) lecture.shares.push_back(share_row(p));
  for (Rank const t : {4, 8, 16, 64}) lecture.tensor_grids.push_back(tensor_grids_of(t));
  return lecture;
}

} // namespace trainstone
