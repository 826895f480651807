#include "model/parameter_table.hpp"

#include "core/error.hpp"
#include "model/part.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <vector>

#include <set>

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
    REQUIRE(table.groups().size() == 4);
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
  }
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

TEST_CASE("parts read the groups that the formulas say, and a block's are completed from its end", "[model]") {
  CHECK(parts(2).size() == 6);
  CHECK(to_string(parts(2)[3]) == "attention 1");
  CHECK(to_string(parts(2)[4]) == "mlp 1");
  CHECK(group_of({PartKind::head}) == 0);
  ParameterTable const table({2, 4, 64, 32, 128}, 3);
  PartTable const all(table);
  REQUIRE(all.size() == 6);
  for (Index number = 0; number < all.size(); ++number) {
    CHECK(all[number] == parts(2)[static_cast<std::size_t>(number)]);
    std::array<Index, 2> const of_group = all.of_group(all.group(number));
    CHECK(std::ranges::count(of_group, number) == 1);
  }
  std::vector<Index> begins;
  for (PartKind const kind : {PartKind::mlp, PartKind::attention})
    for (BackwardPiece const& piece : all.backward(kind)) begins.push_back(piece.written.begin);
  Index const c = 64; // ln1 2 C, qkv 3 C^2 + 3 C, attproj C^2 + C, ln2 2 C, fc 4 C^2 + 4 C, fcproj
  Index const attproj = 3 * c * c + 5 * c, ln2 = 4 * c * c + 6 * c, fc = ln2 + 2 * c, fcproj = fc + 4 * c * c + 4 * c;
  CHECK(begins == std::vector<Index>{fcproj, fc, ln2, attproj, 2 * c, 0});
  CHECK(all.backward(PartKind::mlp)[0].written.end == table.groups()[1].padded);
  for (PartKind const kind : {PartKind::head, PartKind::embed}) {
    REQUIRE(all.backward(kind).size() == 1);
    CHECK(all.backward(kind)[0].written == Range{0, table.groups()[0].padded});
    CHECK(all.backward(kind)[0].completes == (kind == PartKind::embed)); // which adds to the token table
  }
}
