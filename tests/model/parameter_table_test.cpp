#include "model/parameter_table.hpp"

#include "core/error.hpp"
#include "model/part.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <vector>

#include <set>
#include <string>

using namespace trainstone;

TEST_CASE("parameter counts are those published for the GPT-2 family", "[model]") {
  auto const count = [](char const* preset) { return ParameterTable(*find_preset(preset), 1).model_parameters(); };
  CHECK(count("gpt2") == 124439808);
  CHECK(count("gpt2-medium") == 354823168);
  CHECK(count("gpt2-large") == 774030080);
  CHECK(count("gpt2-xl") == 1557611200);
}

TEST_CASE("groups are padded to ranks times 256 and tensors fill them without gaps", "[model]") {
  GptConfig const config{3, 3, 36, 19, 97};
  for (std::int64_t ranks : {1, 2, 3, 4, 7}) {
    ParameterTable const table(config, ranks);
    REQUIRE(table.groups().size() == 6);
    REQUIRE(table.units().size() == 4);
    std::int64_t expected_offset = 0;
    for (std::size_t g = 0; g < table.groups().size(); ++g) {
      ParameterGroup const& group = table.groups()[g];
      CHECK(group.offset == expected_offset);
      CHECK(group.padded % (ranks * 256) == 0);
      CHECK(group.padded >= group.size);
      CHECK(group.padded < group.size + ranks * 256);
      std::int64_t inside = group.offset;
      for (ParameterTensor const& tensor : table.tensors()) {
        if (tensor.group != static_cast<std::int64_t>(g)) continue;
        CHECK(tensor.offset == inside);
        inside += tensor.size();
      }
      CHECK(inside == group.offset + group.size);
      expected_offset += group.padded;
    }
    CHECK(table.size() == expected_offset);
    std::int64_t unit_offset = 0, group = 0;
    for (ParameterUnit const& unit : table.units()) { // which the groups fill without gaps, too
      CHECK(unit.offset == unit_offset);
      CHECK(unit.first_group == group);
      for (; unit.has(group); ++group) unit_offset += table.groups()[static_cast<std::size_t>(group)].padded;
      CHECK(unit.padded == unit_offset - unit.offset);
    }
    CHECK(group == std::ssize(table.groups()));
  }
}

TEST_CASE("the token table, the position table and the final norm are groups, and every block is one", "[model]") {
  ParameterTable const table({2, 4, 64, 32, 128}, 3);
  std::vector<std::string> groups, units;
  for (ParameterGroup const& group : table.groups()) groups.push_back(group.name);
  for (ParameterUnit const& unit : table.units()) units.push_back(unit.name);
  CHECK(groups == std::vector<std::string>{"token table", "position table", "final norm", "block 0", "block 1"});
  CHECK(units == std::vector<std::string>{"root", "block 0", "block 1"});
  CHECK(table.find(Tensor::wte).group == 0);
  CHECK(table.find(Tensor::wpe).group == 1);
  CHECK(table.find(Tensor::lnfw).group == 2);
  CHECK(table.find(Tensor::lnfb).group == 2);
  CHECK(table.find(Tensor::fcb, 1).group == 4);
  CHECK(table.offset_in_unit(table.find(Tensor::lnfb)) == 8448 + 2304 + 64); // 128 x 64 and 32 x 64, padded to 3 x 256
}

namespace {

ModelStage stage_of(std::int64_t first, std::int64_t end, std::int64_t layers) {
  ModelStage stage{first == 0, {}, end == layers};
  for (std::int64_t block = first; block < end; ++block) stage.blocks.push_back(block);
  return stage;
}

} // namespace

TEST_CASE("a stage has its blocks, the token table for embed and for head, and what one of these reads", "[model]") {
  GptConfig const gpt2 = *find_preset("gpt2");
  auto const elements = [&](ModelStage const& stage, std::int64_t parts) { // slices, and owners of groups
    return ParameterTable(gpt2, parts, stage, {.blocks = parts, .ranks = parts, .rank = parts - 1}).size();
  };
  CHECK(elements(ModelStage::whole(gpt2), 1) == 124475904);
  CHECK(elements(stage_of(0, 6, 12), 2) == 41382912);
  CHECK(elements(stage_of(6, 12, 12), 2) == 40598016);
  CHECK(elements(stage_of(0, 5, 12), 1) + elements(stage_of(5, 9, 12), 1) + elements(stage_of(9, 12, 12), 1) ==
        124475904 + 50304 * 768); // the table is there twice

  GptConfig const config{4, 2, 8, 5, 11};
  ParameterTable const whole(config, 3);
  std::size_t tensors = 0;
  for (ModelStage const& stage :
       {stage_of(0, 1, 4), stage_of(1, 3, 4), stage_of(3, 4, 4), ModelStage{false, {}, true}}) {
    ParameterTable const table(config, 3, stage);
    tensors += table.tensors().size();
    CHECK(table.model_parameters() == whole.model_parameters());
    for (ParameterTensor const& tensor : table.tensors()) { // as in the whole model
      ParameterTensor const& same = whole.find(tensor.tensor, tensor.block);
      CHECK(tensor.name == same.name);
      CHECK(tensor.initial.first_counter == same.initial.first_counter);
      if (tensor.block >= 0) CHECK(table.offset_in_unit(tensor) == whole.offset_in_unit(same));
    }
  }
  CHECK(tensors == 4 * 12 + 2 + 3 + 3); // wte and wpe; wte and the final norm, on two stages
  CHECK_THROWS_AS(ParameterTable(config, 3, stage_of(1, 3, 4)).unit_of(-1), Error);
  CHECK_THROWS_AS(ParameterTable(config, 3, stage_of(1, 3, 4)).unit_of(3), Error);
  CHECK_THROWS_AS(ParameterTable(config, 3, ModelStage{true, {1, 1}, true}), Error);
  CHECK_THROWS_AS(ParameterTable(config, 3, ModelStage{true, {2, 1}, true}), Error);
  CHECK_THROWS_AS(ParameterTable(config, 3, ModelStage{true, {3, 4}, true}), Error);
}

TEST_CASE("parts of a stage keep their names, and embed or head alone completes its unit", "[model]") {
  GptConfig const config{4, 2, 8, 5, 11};
  auto const names = [](PartTable const& table) {
    std::vector<std::string> all;
    for (Index number = 0; number < table.size(); ++number) all.push_back(to_string(table[number]));
    return all;
  };
  using Names = std::vector<std::string>;
  PartTable const first(ParameterTable(config, 1, stage_of(0, 1, 4))),
      middle(ParameterTable(config, 1, stage_of(1, 3, 4)));
  PartTable const last(ParameterTable(config, 1, ModelStage{false, {}, true}));
  CHECK(names(first) == Names{"embed", "attention 0", "mlp 0"});
  CHECK(names(middle) == Names{"attention 1", "mlp 1", "attention 2", "mlp 2"});
  CHECK(names(last) == Names{"head"});
  CHECK(first.begins(0)); // its unit's gradient: no head writes it before
  CHECK(first.backward(0)[0].complete_from == 0);
  CHECK(last.backward(0)[0].complete_from == 0);
  CHECK(middle.unit(0) == 0);
  CHECK(middle.unit(3) == 1);
  CHECK(middle.of_unit(1) == std::vector<Index>{2, 3});
  CHECK(middle.layers() == 4);
  CHECK(middle.backward(3).back().complete_from > 0);
}

TEST_CASE("the chunks of a stage are runs of its parts: embed begins the first one, head ends the last one",
          "[model]") {
  GptConfig const config{5, 2, 8, 5, 11};
  auto const chunks = [&](ModelStage const& stage) {
    PartTable const parts(ParameterTable(config, 1, stage));
    std::vector<Range> all;
    for (Index chunk = 0; chunk < parts.chunks(); ++chunk) all.push_back(parts.chunk_parts(chunk));
    return all;
  };
  using Chunks = std::vector<Range>;
  CHECK(chunks(ModelStage::whole(config)) == Chunks{{0, 12}});
  CHECK(chunks({true, {0, 1, 3}, false, {2, 1}}) == Chunks{{0, 5}, {5, 7}});
  CHECK(chunks({false, {2, 4}, true, {1, 1}}) == Chunks{{0, 2}, {2, 5}});
  CHECK(chunks({true, {2}, false, {0, 1}}) == Chunks{{0, 1}, {1, 3}});
  CHECK(chunks({false, {2}, true, {1, 0}}) == Chunks{{0, 2}, {2, 3}});
  CHECK(chunks({false, {}, true}) == Chunks{{0, 1}});
  CHECK_THROWS_AS(chunks({true, {0, 1, 3}, false, {1, 1}}), Error);
}

TEST_CASE("initial values are keyed alike for every number of ranks and never share a counter", "[model]") {
  GptConfig const config{2, 2, 8, 5, 11};
  ParameterTable const one(config, 1), three(config, 3);
  std::set<std::int64_t> used;
  for (std::size_t i = 0; i < one.tensors().size(); ++i) {
    InitialValue const a = one.tensors()[i].initial, b = three.tensors()[i].initial;
    CHECK(a.first_counter == b.first_counter);
    for (std::int64_t k = 0; k < a.random_elements; ++k) CHECK(used.insert(a.first_counter + k).second);
  }
  CHECK(one.find(Tensor::wte).initial.random_elements == 11 * 8); // rows of the padded vocabulary start at zero
  CHECK(one.find(Tensor::ln1w, 1).initial.constant == 1.0);
  CHECK(one.find(Tensor::attprojw, 0).initial.deviation == 0.02 / 2); // 1/sqrt(2 L), L = 2
  CHECK(one.find(Tensor::fcw, 0).initial.deviation == 0.02);
}

TEST_CASE("a shape that is no model is refused with the nearest legal values", "[model]") {
  CHECK_THROWS_AS(ParameterTable(GptConfig{2, 3, 32, 8, 10}, 1), InputError);
  CHECK_THROWS_AS(ParameterTable(GptConfig{0, 1, 32, 8, 10}, 1), InputError);
}

TEST_CASE("parts read the units that the formulas say, and a block's are completed from its end", "[model]") {
  CHECK(parts(2).size() == 6);
  CHECK(to_string(parts(2)[3]) == "attention 1");
  CHECK(to_string(parts(2)[4]) == "mlp 1");
  ParameterTable const table({2, 4, 64, 32, 128}, 3);
  PartTable const all(table);
  REQUIRE(all.size() == 6);
  for (Index number = 0; number < all.size(); ++number) {
    CHECK(all[number] == parts(2)[static_cast<std::size_t>(number)]);
    CHECK(all.unit(number) == table.unit_of(all[number].block));
    CHECK(std::ranges::count(all.of_unit(all.unit(number)), number) == 1);
    CHECK(all.begins(number) == (all[number].kind == PartKind::head || all[number].kind == PartKind::mlp));
  }
  std::vector<Index> begins;
  for (Index const number : {2, 1}) // mlp 0, attention 0
    for (BackwardPiece const& piece : all.backward(number)) {
      REQUIRE(piece.written.size() == 1);
      CHECK(piece.complete_from == piece.written[0].begin);
      begins.push_back(piece.complete_from);
    }
  Index const c = 64; // ln1 2 C, qkv 3 C^2 + 3 C, attproj C^2 + C, ln2 2 C, fc 4 C^2 + 4 C, fcproj
  Index const attproj = 3 * c * c + 5 * c, ln2 = 4 * c * c + 6 * c, fc = ln2 + 2 * c, fcproj = fc + 4 * c * c + 4 * c;
  CHECK(begins == std::vector<Index>{fcproj, fc, ln2, attproj, 2 * c, 0});
  CHECK(all.backward(2)[0].written[0].end == table.units()[1].padded);
  REQUIRE(all.backward(5).size() == 1);
  REQUIRE(all.backward(0).size() == 1);
  BackwardPiece const &head = all.backward(5)[0], &embed = all.backward(0)[0];
  Index const tokens = 8448, positions = 2304, root = tokens + positions + 768; // padded to multiples of 3 x 256
  CHECK(head.written == std::vector<Range>{{0, tokens}, {tokens + positions, root}});
  CHECK(embed.written == std::vector<Range>{{0, tokens}, {tokens, tokens + positions}});
  CHECK(head.complete_from == root); // embed adds to the token table
  CHECK(embed.complete_from == 0);
}

namespace {

std::vector<std::string> unit_names(ParameterTable const& table) {
  std::vector<std::string> names;
  for (ParameterUnit const& unit : table.units()) names.push_back(unit.name);
  return names;
}

} // namespace

TEST_CASE("a unit has so many blocks, the last one what is left, and none has blocks of two chunks", "[model]") {
  GptConfig const config{5, 2, 8, 5, 11};
  using Names = std::vector<std::string>;
  auto const whole = [&](std::int64_t blocks) { return ParameterTable(config, 3, {}, blocks); };
  auto const of_stage = [&](ModelStage const& stage) { return unit_names(ParameterTable(config, 3, stage, {}, 2)); };
  CHECK(unit_names(whole(2)) == Names{"root", "blocks 0 to 1", "blocks 2 to 3", "block 4"});
  CHECK(unit_names(whole(3)) == Names{"root", "blocks 0 to 2", "blocks 3 to 4"});
  CHECK(unit_names(whole(5)) == Names{"root", "blocks 0 to 4"});
  CHECK(unit_names(whole(9)) == unit_names(whole(5)));
  CHECK(of_stage({false, {1, 2, 3}, false}) == Names{"blocks 1 to 2", "block 3"});
  CHECK(of_stage({true, {0, 1, 2, 4}, true, {3, 1}}) == Names{"root", "blocks 0 to 1", "block 2", "block 4"});
  CHECK(of_stage({false, {2}, true, {1, 0}}) == Names{"root", "block 2"});
  CHECK_THROWS_AS(whole(0), Error);
}

TEST_CASE("units of several blocks leave groups, tensors and initial values where they are", "[model]") {
  GptConfig const config{5, 2, 8, 5, 11};
  ParameterTable const single(config, 3);
  Index const block = single.groups().back().padded, root = single.units().front().padded;
  for (std::int64_t const blocks : {2, 3, 5}) {
    ParameterTable const table(config, 3, {}, blocks);
    CHECK(table.size() == single.size());
    REQUIRE(table.groups().size() == single.groups().size());
    for (std::size_t g = 0; g < table.groups().size(); ++g) {
      CHECK(table.groups()[g].name == single.groups()[g].name);
      CHECK(table.groups()[g].offset == single.groups()[g].offset);
      CHECK(table.groups()[g].sections == single.groups()[g].sections);
    }
    REQUIRE(table.tensors().size() == single.tensors().size());
    for (ParameterTensor const& tensor : table.tensors()) {
      ParameterTensor const& same = single.find(tensor.tensor, tensor.block);
      CHECK(tensor.offset == same.offset);
      CHECK(tensor.initial.first_counter == same.initial.first_counter);
      CHECK(&table.find(tensor.tensor, tensor.block) == &tensor);
      if (tensor.block < 0) continue;
      Index const unit = table.unit_of(tensor.block);
      CHECK(unit == 1 + tensor.block / blocks);
      CHECK(table.units()[static_cast<std::size_t>(unit)].has(tensor.group));
      CHECK(table.offset_in_unit(tensor) == single.offset_in_unit(same) + tensor.block % blocks * block);
    }
    for (Index unit = 1; unit < std::ssize(table.units()); ++unit) {
      Index const first = (unit - 1) * blocks, here = std::min(blocks, 5 - first);
      CHECK(table.units()[static_cast<std::size_t>(unit)].offset == root + first * block);
      CHECK(table.units()[static_cast<std::size_t>(unit)].padded == here * block);
    }
  }
}

TEST_CASE("the backward of a unit's blocks completes its gradient from its end to its begin", "[model]") {
  GptConfig const config{5, 2, 8, 5, 11};
  PartTable const single(ParameterTable(config, 3)), parts(ParameterTable(config, 3, {}, 2));
  Index const block = ParameterTable(config, 3).groups().back().padded;
  CHECK(parts.of_unit(1) == std::vector<Index>{1, 2, 3, 4});
  CHECK(parts.of_unit(3) == std::vector<Index>{9, 10});
  for (Index number = 1; number <= 10; ++number) { // two parts of each block
    Index const place = (number - 1) / 2 % 2;      // of the block in its unit
    std::vector<BackwardPiece> const &pieces = parts.backward(number), &alone = single.backward(number);
    REQUIRE(pieces.size() == alone.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      CHECK(pieces[i].complete_from == alone[i].complete_from + place * block);
      REQUIRE(pieces[i].written.size() == alone[i].written.size());
      for (std::size_t w = 0; w < pieces[i].written.size(); ++w) {
        CHECK(pieces[i].written[w].begin == alone[i].written[w].begin + place * block);
        CHECK(pieces[i].written[w].end == alone[i].written[w].end + place * block);
      }
    }
    CHECK(parts.begins(number) == (number == 4 || number == 8 || number == 10)); // the last mlp of each unit
  }
}
