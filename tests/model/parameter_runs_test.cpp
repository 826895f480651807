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
#include <vector>

using namespace trainstone;

namespace {

GptConfig const model{.layers = 2, .heads = 3, .channels = 12, .context = 11, .vocab = 29};
constexpr Index block = 3; // the first block's group

/// Some tensors by rows, others by columns, the rest whole.
Split split_of(Tensor tensor, Index parts, Index part) {
  switch (tensor) {
  case Tensor::wte:
  case Tensor::qkvw:
  case Tensor::fcw: return {Split::Of::rows, parts, part};
  case Tensor::attprojw:
  case Tensor::fcb:
  case Tensor::fcprojw: return {Split::Of::columns, parts, part};
  default: return {};
  }
}

/// Initial values of a group.
std::vector<float> values_of(ParameterTable const& table, Index group) {
  ExecutionSpace const exec;
  Index const padded = table.groups()[static_cast<std::size_t>(group)].padded;
  test::DeviceTensor<float> const values(padded, -1.0F);
  initialize_parameters(exec, table, group, 5, {0, padded}, values.vector());
  return copy_to_host(exec, values.vector(), "test");
}

} // namespace

TEST_CASE("the parts of split tensors are the whole, once, with the same initial values", "[model]") {
  Index const parts = GENERATE(1, 2, 4);
  ParameterTable const whole(model, 1);
  for (Index group = 0; group < std::ssize(whole.groups()); ++group) {
    ParameterGroup const& entry = whole.groups()[static_cast<std::size_t>(group)];
    std::vector<float> const expected = values_of(whole, group);
    std::vector<int> seen(static_cast<std::size_t>(entry.size), 0);
    int wrong = 0;
    for (Index part = 0; part < parts; ++part) {
      ParameterTable const table(model, 1, [&](Tensor tensor) { return split_of(tensor, parts, part); });
      CHECK(table.model_parameters() == whole.model_parameters());
      std::vector<float> const values = values_of(table, group);
      for_each_run(
          table, group, {0, table.groups()[static_cast<std::size_t>(group)].padded}, [&](ParameterRun const& run) {
            Index const begin = whole.find(run.tensor.tensor, run.tensor.block).offset - entry.offset + run.in_whole;
            bool const split = run.tensor.split.of != Split::Of::nothing;
            for (Index i = 0; i < run.size; ++i) {
              auto const place = static_cast<std::size_t>(begin + i);
              if (split || part == 0) ++seen[place]; // every part has what is not split
              wrong += values[static_cast<std::size_t>(run.in_group + i)] == expected[place] ? 0 : 1;
            }
          });
    }
    CHECK(seen == std::vector<int>(seen.size(), 1));
    CHECK(wrong == 0);
  }
}

TEST_CASE("the walk begins and ends anywhere: its runs are those of the whole group", "[model]") {
  ParameterTable const table(model, 1, [](Tensor tensor) { return split_of(tensor, 2, 1); });
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
  for (Index begin = 0; begin < size; begin += 7) for_each_run(table, block, {begin, begin + 7}, add(in_pieces));
  CHECK(in_pieces == all);
}

TEST_CASE("runs in whole groups put what the parts hold where a whole group has it", "[model]") {
  Index const parts = GENERATE(1, 2, 4);
  ParameterTable const whole(model, 1);
  std::size_t joined = 0, runs = 0;
  for (Index group = 0; group < std::ssize(whole.groups()); ++group) {
    std::vector<float> found(static_cast<std::size_t>(whole.groups()[static_cast<std::size_t>(group)].padded), 0);
    for (Index part = 0; part < parts; ++part) {
      ParameterTable const table(model, 1, [&](Tensor tensor) { return split_of(tensor, parts, part); });
      ParameterGroup const& entry = table.groups()[static_cast<std::size_t>(group)];
      CHECK(entry.whole_size == whole.groups()[static_cast<std::size_t>(group)].size);
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

TEST_CASE("a tensor that cannot be cut into equal parts is refused", "[model]") {
  auto const cut = [](Split const& split) {
    ParameterTable(model, 1, [&](Tensor tensor) { return tensor == Tensor::attprojw ? split : Split(); });
  };
  CHECK_NOTHROW(cut({Split::Of::rows, 3, 2}));
  CHECK_THROWS_AS(cut({Split::Of::rows, 5, 0}), InputError);
  CHECK_THROWS_AS(cut({Split::Of::columns, 4, 4}), InputError);
  CHECK_THROWS_AS(cut({Split::Of::nothing, 2, 0}), InputError);
}
