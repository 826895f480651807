#include "model/parameter_table.hpp"

#include "core/error.hpp"
#include "model/unit.hpp"

#include <catch2/catch_test_macros.hpp>

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

TEST_CASE("units read and complete the groups that the formulas say", "[model]") {
  CHECK(units(2).size() == 4);
  CHECK(to_string(units(2)[2]) == "block 1");
  CHECK(group_read_by({UnitKind::head}) == 0);
}
