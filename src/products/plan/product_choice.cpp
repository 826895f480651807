#include "products/plan/product_choice.hpp"

#include "core/error.hpp"
#include "products/plan/product_counts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace trainstone {

namespace {

struct Way {
  std::string_view name;
  ProductAlgorithm algorithm;
  std::string_view need;
  bool (*takes)(ProductGrid const& grid);
};

bool is_line(ProductGrid const& grid) { return std::max({grid.x, grid.y, grid.z}) == grid.ranks(); }
bool is_square(ProductGrid const& grid) { return grid.y == 1 && grid.x == grid.z; }
bool has_layers(ProductGrid const& grid) { return grid.y > 1 && grid.x == grid.z && grid.x % grid.y == 0; }

constexpr std::array ways{
    Way{"1d", ProductAlgorithm::grid, "all ranks along one axis", is_line},
    Way{"summa", ProductAlgorithm::summa, "q x 1 x q ranks", is_square},
    Way{"cannon", ProductAlgorithm::cannon, "q x 1 x q ranks", is_square},
    Way{"2.5d", ProductAlgorithm::replicated, "q x c x q ranks, where c > 1 divides q", has_layers},
    Way{"3d", ProductAlgorithm::grid, "any box of ranks", [](ProductGrid const&) { return true; }},
};

constexpr auto names = [] {
  std::array<std::string_view, ways.size()> all;
  std::ranges::transform(ways, all.begin(), &Way::name);
  return all;
}();

Way const& find_way(std::string_view name) {
  auto const found = std::ranges::find(ways, name, &Way::name);
  TRAINSTONE_REQUIRE_INPUT(found != ways.end(), "no algorithm \"{}\" of products; there is: {}", name,
                           fmt::join(names, ", "));
  return *found;
}

std::vector<ProductGrid> legal_grids(Way const& way, Rank ranks) {
  std::vector<ProductGrid> legal;
  std::ranges::copy_if(grids_of(ranks), std::back_inserter(legal), way.takes);
  return legal;
}

std::string texts(std::vector<ProductGrid> const& grids) {
  std::vector<std::string> all;
  for (ProductGrid const& grid : grids) all.push_back(fmt::format("{}x{}x{}", grid.x, grid.y, grid.z));
  return fmt::format("{}", fmt::join(all, ", "));
}

/// Names of the ways that this number of ranks allows, or this grid.
std::string legal_names(Rank ranks, std::optional<ProductGrid> const& grid) {
  std::vector<std::string_view> legal;
  for (Way const& way : ways)
    if (grid ? way.takes(*grid) : !legal_grids(way, ranks).empty()) legal.push_back(way.name);
  return fmt::format("{}", fmt::join(legal, ", "));
}

/// Why a way is impossible; empty: it is not.
std::string problem_of(Way const& way, Rank ranks, std::optional<ProductGrid> const& grid) {
  std::vector<ProductGrid> const legal = legal_grids(way, ranks);
  if (legal.empty())
    return fmt::format("{} needs {}, there are {}; legal here: {}", way.name, way.need, ranks, legal_names(ranks, {}));
  if (grid && !way.takes(*grid))
    return fmt::format("{} needs {}, not {}; legal grids of {} ranks: {}", way.name, way.need, to_string(*grid), ranks,
                       texts(legal));
  return "";
}

} // namespace

std::span<std::string_view const> product_names() { return names; }

std::optional<ProductGrid> parse_product_grid(std::string const& text) {
  if (text == "auto") return std::nullopt;
  std::array<Rank, 3> extents{};
  char const *at = text.data(), *const last = text.data() + text.size();
  bool right = true;
  for (std::size_t i = 0; i < extents.size() && right; ++i) {
    auto const [end, error] = std::from_chars(at, last, extents[i]);
    bool const ends = i + 1 == extents.size() ? end == last : end != last && (*end == 'x' || *end == ',');
    right = error == std::errc() && extents[i] >= 1 && extents[i] <= 1 << 20 && ends;
    at = end + 1;
  }
  TRAINSTONE_REQUIRE_INPUT(right, "--grid {}: must be auto or three numbers of ranks like 2x1x2", text);
  return ProductGrid{extents[0], extents[1], extents[2]};
}

std::vector<ProductGrid> legal_product_grids(std::string_view name, Rank ranks) {
  return legal_grids(find_way(name), ranks);
}

ProductChoices choose_products(ProductSize const& size, Rank ranks, std::vector<std::string> const& wanted,
                               std::optional<ProductGrid> const& grid) {
  for (std::string const& name : wanted) find_way(name);
  TRAINSTONE_REQUIRE_INPUT(!grid || Index{grid->x} * grid->y * grid->z == ranks,
                           "--grid {}: the grid does not have {} ranks; legal values: {}", to_string(*grid), ranks,
                           texts(grids_of(ranks)));
  ProductChoices found;
  for (Way const& way : ways) {
    bool const is_named = std::ranges::find(wanted, way.name) != wanted.end();
    if (!wanted.empty() && !is_named) continue;
    std::string const problem = problem_of(way, ranks, grid);
    TRAINSTONE_REQUIRE_INPUT(problem.empty() || !is_named, "{}", problem);
    if (!problem.empty()) {
      found.left_out.push_back(problem);
      continue;
    }
    auto const cost = [&](ProductGrid const& one) { return grid_cost(way.algorithm, one, size); };
    ProductGrid const chosen = grid ? *grid : std::ranges::min(legal_grids(way, ranks), {}, cost);
    found.choices.push_back({std::string(way.name), way.algorithm, chosen});
  }
  return found;
}

} // namespace trainstone
