// Split tensors against whole ones: where the walk says that elements lie, and their initial values.

#include "model/parameter_runs.hpp"

#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "model/gpt.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

using namespace trainstone;

namespace {

GptConfig const model{.layers = 2, .heads = 4, .channels = 12, .context = 11, .vocab = 29};
constexpr Index block = 3; // the first block's group

/// Initial values of a group.
std::vector<float> values_of(ParameterTable const& table, Index group) {
  ExecutionSpace const exec;
  Index const padded = table.groups()[static_cast<std::size_t>(group)].padded;
  test::DeviceTensor<float> const values(padded, -1.0F);
  initialize_parameters(exec, table, group, 5, {0, padded}, values.vector());
  return copy_to_host(exec, values.vector(), "test");
}

} // namespace

TEST_CASE("the slices of all tensor ranks are the whole, once, with the same initial values", "[model]") {
  auto const [blocks, ranks] = GENERATE(std::pair<Index, Index>{1, 1}, std::pair<Index, Index>{2, 1},
                                        std::pair<Index, Index>{2, 2}, std::pair<Index, Index>{4, 2});
  ParameterTable const whole(model, 1);
  for (Index group = 0; group < std::ssize(whole.groups()); ++group) {
    ParameterGroup const& entry = whole.groups()[static_cast<std::size_t>(group)];
    std::vector<float> const expected = values_of(whole, group);
    std::vector<int> seen(static_cast<std::size_t>(entry.size), 0);
    int wrong = 0;
    for (Index rank = 0; rank < ranks; ++rank) {
      ParameterTable const table(model, 1, {blocks, ranks, rank});
      CHECK(table.model_parameters() == whole.model_parameters());
      std::vector<float> const values = values_of(table, group);
      for_each_run(
          table, group, {0, table.groups()[static_cast<std::size_t>(group)].padded}, [&](ParameterRun const& run) {
            Index const begin = whole.find(run.tensor.tensor, run.tensor.block).offset - entry.offset + run.in_whole;
            bool const split = run.tensor.split.of != Split::Of::nothing;
            for (Index i = 0; i < run.size; ++i) {
              auto const place = static_cast<std::size_t>(begin + i);
              if (split || rank == 0) ++seen[place]; // every rank has what is not cut
              wrong += values[static_cast<std::size_t>(run.in_group + i)] == expected[place] ? 0 : 1;
            }
          });
    }
    CHECK(seen == std::vector<int>(seen.size(), 1));
    CHECK(wrong == 0);
  }
}

TEST_CASE("the parts of a grid of tensor ranks are the whole, once, with the same initial values", "[model]") {
  auto const [x, y] = GENERATE(std::pair<Index, Index>{1, 2}, std::pair<Index, Index>{2, 2},
                               std::pair<Index, Index>{4, 3}, std::pair<Index, Index>{2, 12});
  ParameterTable const whole(model, 1);
  Index sections = 0;
  for (Index group = 0; group < std::ssize(whole.groups()); ++group) {
    ParameterGroup const& entry = whole.groups()[static_cast<std::size_t>(group)];
    std::vector<float> const expected = values_of(whole, group);
    int wrong = 0;
    std::vector<int> seen(static_cast<std::size_t>(entry.size), 0);
    for (Index rank = 0; rank < x * y; ++rank) {
      ParameterTable const table(model, 1, {x, x, rank % x, y, rank / x});
      CHECK(table.model_parameters() == whole.model_parameters());
      sections = table.model_sections();
      std::vector<float> const values = values_of(table, group);
      ParameterGroup const& here = table.groups()[static_cast<std::size_t>(group)];
      for_each_run(table, group, {0, here.padded}, [&](ParameterRun const& run) {
        Index const begin = whole.find(run.tensor.tensor, run.tensor.block).offset - entry.offset + run.in_whole;
        bool const counts = (run.tensor.split.cuts() || rank % x == 0) && (run.tensor.features.cuts() || rank / x == 0);
        if (x > 1) CHECK((run.tensor.features.cuts() || run.tensor.split.cuts()));
        for (Index i = 0; i < run.size; ++i) {
          auto const place = static_cast<std::size_t>(begin + i);
          seen[place] += counts ? 1 : 0;
          wrong += values[static_cast<std::size_t>(run.in_group + i)] == expected[place] ? 0 : 1;
        }
      });
      for (ParameterSection const& section : here.sections) {
        CHECK(section.elements.begin % 256 == 0);
        CHECK(section.number < sections);
      }
    }
    CHECK(seen == std::vector<int>(seen.size(), 1));
    CHECK(wrong == 0);
  }
  // token table: slices and parts; positions and final norm: parts; a block: parts, slices (biases), both
  Index const slices = x == 1 ? 0 : x;
  CHECK(sections == (x == 1 ? y : x * y) + 2 * y + model.layers * (x == 1 ? 1 + y : y + slices + x * y));
}

TEST_CASE("the walk begins and ends anywhere: its runs are those of the whole group", "[model]") {
  ParameterTable const table(model, 1, {4, 2, 1});
  std::map<Index, std::pair<Index, Tensor>> all; // by place in the group
  auto const add = [](auto& places) {
    return [&places](ParameterRun const& run) {
      for (Index i = 0; i < run.size; ++i) places[run.in_group + i] = {run.in_whole + i, run.tensor.tensor};
    };
  };
  ParameterGroup const& group = table.groups()[block];
  Index const size = group.size;
  for_each_run(table, block, {0, group.padded}, add(all));
  CHECK(std::ssize(all) == size);
  std::map<Index, std::pair<Index, Tensor>> in_pieces;
  for (Index begin = 0; begin < group.padded; begin += 7)
    for_each_run(table, block, {begin, begin + 7}, add(in_pieces));
  CHECK(in_pieces == all);
}

TEST_CASE("runs in whole groups put what the slices hold where a whole group has it", "[model]") {
  auto const [blocks, ranks] = GENERATE(std::pair<Index, Index>{1, 1}, std::pair<Index, Index>{2, 1},
                                        std::pair<Index, Index>{2, 2}, std::pair<Index, Index>{4, 2});
  ParameterTable const whole(model, 1);
  std::size_t joined = 0, runs = 0;
  for (Index group = 0; group < std::ssize(whole.groups()); ++group) {
    std::vector<float> found(static_cast<std::size_t>(whole.groups()[static_cast<std::size_t>(group)].padded), 0);
    for (Index rank = 0; rank < ranks; ++rank) {
      ParameterTable const table(model, 1, {blocks, ranks, rank});
      ParameterGroup const& entry = table.groups()[static_cast<std::size_t>(group)];
      Index const padding = group == 0 ? (model.padded_vocab() - model.vocab) * model.channels : 0;
      CHECK(entry.whole_size == whole.groups()[static_cast<std::size_t>(group)].size - padding);
      std::vector<float> const values = values_of(table, group);
      for (Index begin = 0; begin < entry.padded; begin += 1000) {
        Range const chunk{begin, std::min(begin + 1000, entry.padded)};
        for (GroupRun const& run : group_runs(table, group, chunk)) {
          std::copy_n(values.begin() + run.in_group, run.in_whole.size(), found.begin() + run.in_whole.begin);
          ++joined;
        }
        for_each_run(table, group, chunk, [&](ParameterRun const&) { ++runs; });
      }
    }
    CHECK(found == values_of(whole, group));
  }
  CHECK(joined < runs);
}

TEST_CASE("where no tensor is split, a part of a group is one run, and padding is none", "[model]") {
  ParameterTable const table(model, 4);
  ParameterGroup const& group = table.groups()[block];
  REQUIRE(group.size < group.padded);
  CHECK(group_runs(table, block, {0, group.padded}) == std::vector<GroupRun>{{0, {0, group.size}}});
  CHECK(group_runs(table, block, {256, 1024}) == std::vector<GroupRun>{{256, {256, 1024}}});
  CHECK(group_runs(table, block, {group.size, group.padded}).empty());
  CHECK(group_runs(table, block, {0, 0}).empty());
}

TEST_CASE("a model that cannot be cut into so many slices is refused", "[model]") {
  CHECK_NOTHROW(ParameterTable(model, 1, {4, 1, 0}));
  CHECK_THROWS_AS(ParameterTable(model, 1, {3, 1, 0}), InputError); // 4 heads
  GptConfig const five{.layers = 1, .heads = 5, .channels = 10, .context = 4, .vocab = 29};
  CHECK_THROWS_AS(ParameterTable(five, 1, {5, 1, 0}), InputError); // 128 rows of the token table
  CHECK_THROWS_AS(ParameterTable(model, 1, {4, 3, 0}), Error);
  CHECK_THROWS_AS(ParameterTable(model, 1, {4, 2, 2}), Error);
}

TEST_CASE("sections begin at blocks of 256 elements, and have the numbers of the whole model", "[model]") {
  GptConfig const config{.layers = 2, .heads = 4, .channels = 36, .context = 5, .vocab = 100};
  ParameterTable const table(config, 2, ModelStage{false, {1}, true}, {4, 2, 1});
  CHECK(table.model_sections() == 4 + 1 + 1 + 2 * (1 + 4));
  REQUIRE(table.groups().size() == 3); // token table, final norm, block 1
  using Sections = std::vector<ParameterSection>;
  Index const of_table = 128 / 4 * 36, padded = (of_table + 255) / 256 * 256; // 1152, 1280
  CHECK(table.groups()[0].sections == Sections{{2, {0, of_table}, 2}, {3, {padded, padded + of_table}, 3}});
  CHECK(table.groups()[0].padding() == std::vector<Range>{{of_table, padded}, {padded + of_table, 2560}});
  CHECK(table.groups()[1].sections == Sections{{ParameterSection::whole, {0, 72}, 5}});
  Index const whole = 6 * 36, slice = (12 * 36 * 36 + 7 * 36) / 4; // 216, 3951
  CHECK(table.groups()[2].sections == Sections{{ParameterSection::whole, {0, whole}, 11},
                                               {2, {256, 256 + slice}, 14},
                                               {3, {4352, 4352 + slice}, 15}});
  CHECK(table.groups()[2].size == whole + 2 * slice);
  CHECK(table.find(Tensor::attprojb, 1).offset == table.find(Tensor::attprojb, 1, 1).offset);
  CHECK(table.find(Tensor::fcw, 1, 1).offset - table.find(Tensor::fcw, 1, 0).offset == 4096);
  CHECK(table.find(Tensor::fcw, 1, 1).name == "block 1 fcw slice 3");
  CHECK_THROWS_AS(table.find(Tensor::fcw, 1, 2), Error);
}
