// Distributed products, played on names: who has which block, and that a defect is found.

#include "products/plan/product_walk.hpp"

#include "core/error.hpp"
#include "products/plan/product_choice.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace trainstone;

namespace {

ProductWalk walk_of(ProductAlgorithm algorithm, ProductGrid const& grid) {
  return walk_product(algorithm, grid, small_product_size(grid));
}

std::vector<std::string> steps_of(ProductWalk const& walk) {
  std::vector<std::string> steps;
  for (ProductMoment const& moment : walk.moments) steps.push_back(moment.what);
  return steps;
}

} // namespace

TEST_CASE("every way to distribute a product can be followed to its complete C", "[products]") {
  for (Rank const ranks : {1, 2, 3, 4, 6, 8, 9, 16, 27, 32, 64})
    for (std::string_view const name : product_names())
      for (ProductGrid const& grid : legal_product_grids(name, ranks))
        for (ProductSize const& size : {small_product_size(grid), ProductSize{7, 5, 11}, {1, 2, 1}}) {
          ProductChoice const way = choose_products(size, ranks, {std::string(name)}, grid).choices.at(0);
          ProductWalk const walk = walk_product(way.algorithm, grid, size);
          CHECK(walk.moments.front().what == "start");
          Index held = 0;
          for (std::vector<HeldPart> const& parts : walk.moments.front().held)
            for (HeldPart const& part : parts) held += part.held;
          CHECK(held == walk.size.m * walk.size.k + walk.size.k * walk.size.n); // all once, and nothing of C
        }
}

TEST_CASE("on a cube each rank gathers a block of A and B, and ends with a share of C", "[products]") {
  ProductWalk const walk = walk_of(ProductAlgorithm::grid, {2, 2, 2});
  CHECK(steps_of(walk) == std::vector<std::string>{"start", "A along x: all_gather direct",
                                                   "B along z: all_gather direct", "multiply",
                                                   "C along y: reduce_scatter direct"});
  auto const held = [&](std::size_t moment) { return walk.moments[moment].held[6]; }; // x 0, y 1, z 1
  CHECK(held(0) == std::vector<HeldPart>{{Operand::a, 1, 1, 2, 4, {}}, {Operand::b, 1, 0, 2, 4, {}}});
  CHECK(held(2) == std::vector<HeldPart>{{Operand::a, 1, 1, 4, 4, {}}, {Operand::b, 1, 0, 4, 4, {}}});
  CHECK(held(3).back() == HeldPart{Operand::c, 1, 0, 4, 4, {1}});
  CHECK(held(4).back() == HeldPart{Operand::c, 1, 0, 2, 4, {0, 1}});
}

TEST_CASE("Cannon's blocks meet on the diagonal of their inner dimension, and move on by one", "[products]") {
  ProductWalk const walk = walk_of(ProductAlgorithm::cannon, {3, 1, 3});
  for (Rank rank = 0; rank < 9; ++rank) {
    Index const x = rank % 3, z = rank / 3;
    std::vector<HeldPart> const& skewed = walk.moments[2].held[static_cast<std::size_t>(rank)];
    CHECK(skewed ==
          std::vector<HeldPart>{{Operand::a, z, (x + z) % 3, 1, 1, {}}, {Operand::b, (x + z) % 3, x, 1 * 3, 3, {}}});
    std::vector<HeldPart> const& last = walk.moments.back().held[static_cast<std::size_t>(rank)];
    CHECK(last.back() == HeldPart{Operand::c, z, x, 3, 3, {0, 1, 2}});
  }
}

TEST_CASE("plans that do not give the product are found out", "[products]") {
  auto const plans_of = [](ProductAlgorithm algorithm, ProductGrid const& grid) {
    std::vector<ProductPlan> plans;
    for (Rank rank = 0; rank < grid.ranks(); ++rank)
      plans.push_back(plan_product(algorithm, grid, small_product_size(grid), Topology::one_node(grid.ranks()), rank));
    return plans;
  };
  auto const check_refused = [](std::vector<ProductPlan> const& plans, char const* words) {
    CHECK_THROWS_WITH(walk_plans(plans), Catch::Matchers::ContainsSubstring(words));
  };
  auto const is_exchange = [](ProductStep const& step) { return step.act == ProductStep::Act::exchange; };
  auto const cannon = plans_of(ProductAlgorithm::cannon, {3, 1, 3}), box = plans_of(ProductAlgorithm::grid, {2, 2, 2});

  auto broken = cannon; // a block from another rank than the one that has the right one
  for (ProductPlan& plan : broken) plan.steps.at(plan.steps.size() - 2).problem.distance = 2;
  check_refused(broken, "do not belong together");

  broken = box; // a gather that is left out
  for (ProductPlan& plan : broken) plan.steps.erase(std::ranges::find_if(plan.steps, is_exchange));
  check_refused(broken, "do not belong together");

  broken = box; // sums that are not brought together
  for (ProductPlan& plan : broken)
    std::erase_if(plan.steps, [&](ProductStep const& step) { return is_exchange(step) && step.operand == Operand::c; });
  check_refused(broken, "is not complete");

  broken = cannon; // a product that is made twice
  for (ProductPlan& plan : broken) plan.steps.push_back(plan.steps.back());
  check_refused(broken, "adds a term of C twice");
}

TEST_CASE("more ranks than a reader can follow are refused", "[products]") {
  CHECK_THROWS_AS(walk_of(ProductAlgorithm::grid, {5, 5, 3}), InputError);
}
