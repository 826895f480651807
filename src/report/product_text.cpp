#include "report/product_text.hpp"

#include "core/aligned.hpp"
#include "core/json_text.hpp"
#include "core/plural.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <array>
#include <numeric>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array operands{Operand::a, Operand::b, Operand::c};

/// "1/2 A(0,1)", or "C(0,1) of k 0" where terms are missing.
std::string part_text(HeldPart const& part, ProductWalk const& walk) {
  std::string text = fmt::format("{}({},{})", to_string(part.operand), part.row, part.column);
  if (part.held != part.elements) {
    Index const divisor = std::gcd(part.held, part.elements);
    text = fmt::format("{}/{} {}", part.held / divisor, part.elements / divisor, text);
  }
  bool const complete = part.operand != Operand::c || std::ssize(part.terms) == walk.inner_blocks;
  return complete ? text : fmt::format("{} of k {}", text, fmt::join(part.terms, ","));
}

std::string cell_text(std::vector<HeldPart> const& parts, Operand operand, ProductWalk const& walk) {
  std::vector<std::string> texts;
  for (HeldPart const& part : parts)
    if (part.operand == operand) texts.push_back(part_text(part, walk));
  return texts.empty() ? "-" : fmt::format("{}", fmt::join(texts, " + "));
}

std::string moment_table(ProductWalk const& walk, std::size_t number) {
  ProductMoment const& moment = walk.moments[number];
  std::vector<std::vector<std::string>> rows{{"", "x,y,z", "A", "B", "C"}};
  for (std::size_t rank = 0; rank < moment.held.size(); ++rank) {
    ProductGrid::Place const place = walk.grid.place(static_cast<Rank>(rank));
    rows.push_back({fmt::format("rank {}", rank), fmt::format("{},{},{}", place.x, place.y, place.z)});
    for (Operand const operand : operands) {
      std::string text = cell_text(moment.held[rank], operand, walk);
      if (number > 0 && text != cell_text(walk.moments[number - 1].held[rank], operand, walk)) text += "*";
      rows.back().push_back(std::move(text));
    }
  }
  return aligned(rows);
}

std::string blocks_text(ProductWalk const& walk) {
  return fmt::format(
      "A is cut into {} x {} blocks, B into {} x {}, C into {} x {}: x cuts columns of B and C, z rows of A "
      "and C{}.\n",
      walk.grid.z, walk.inner_blocks, walk.inner_blocks, walk.grid.x, walk.grid.z, walk.grid.x,
      walk.algorithm == ProductAlgorithm::grid ? ", y the inner dimension" : "");
}

} // namespace

std::string product_walk_text(std::string const& name, ProductWalk const& walk, BusiestProductRank const& busiest) {
  auto const [m, n, k] = walk.size;
  std::string text = fmt::format("{} on a grid of {}, {}\nC ({}, {}) = A ({}, {}) B ({}, {})\n", name,
                                 to_string(walk.grid), plural(walk.grid.ranks(), "rank"), m, n, m, k, k, n);
  text += blocks_text(walk);
  text += "\nA cell names blocks: \"1/2 A(0,1)\" is half of the block in row 0 and column 1, \"of k 0\" has the "
          "products of\ninner block 0 alone, \"-\" is nothing; * is new. A block that was shifted away is not shown.\n";
  for (std::size_t number = 0; number < walk.moments.size(); ++number) {
    text += number == 0 ? "\nstart\n" : fmt::format("\nafter step {}: {}\n", number, walk.moments[number].what);
    text += moment_table(walk, number);
  }
  return text + fmt::format("\nbusiest rank: {}, {} sent\nfullest rank: {} kept\nlower bound: {:g} elements sent\n",
                            plural(busiest.messages, "message"), plural(busiest.sent, "element"),
                            plural(busiest.kept, "element"), product_lower_bound(walk.size, walk.grid.ranks()));
}

std::string product_walk_json(std::string const& name, ProductWalk const& walk, BusiestProductRank const& busiest) {
  Json moments = Json::array();
  for (ProductMoment const& moment : walk.moments) {
    Json ranks = Json::array();
    for (std::vector<HeldPart> const& parts : moment.held) {
      Json held = Json::array();
      for (HeldPart const& part : parts) {
        Json one{{"operand", to_string(part.operand)},
                 {"block", {part.row, part.column}},
                 {"held", part.held},
                 {"elements", part.elements}};
        if (part.operand == Operand::c) one["inner_blocks"] = part.terms;
        held.push_back(std::move(one));
      }
      ranks.push_back(std::move(held));
    }
    moments.push_back({{"step", moment.what}, {"ranks", std::move(ranks)}});
  }
  return json_text(Json{{"algorithm", name},
                        {"grid", {walk.grid.x, walk.grid.y, walk.grid.z}},
                        {"size", {{"m", walk.size.m}, {"n", walk.size.n}, {"k", walk.size.k}}},
                        {"inner_blocks", walk.inner_blocks},
                        {"busiest", {{"messages", busiest.messages}, {"sent", busiest.sent}, {"kept", busiest.kept}}},
                        {"lower_bound", product_lower_bound(walk.size, walk.grid.ranks())},
                        {"moments", std::move(moments)}});
}

} // namespace trainstone
