#include "comm/measurement/exact_data.hpp"

#include "core/error.hpp"
#include "core/types.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <set>
#include <vector>

using namespace trainstone;

namespace {

template <class T>
double value(T element) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, fp16>) {
    return to_float(element);
  } else {
    return static_cast<double>(element);
  }
}

template <class T>
T element(double value) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, fp16>) {
    return from_float<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
std::vector<std::vector<T>> inputs(ExactData const& truth, Problem const& problem) {
  std::vector<std::vector<T>> all;
  for (Rank rank = 0; rank < problem.ranks(); ++rank) {
    all.emplace_back(static_cast<std::size_t>(problem.elements()));
    truth.fill<T>(rank, all.back());
  }
  return all;
}

template <class T>
Index wrong(ExactData const& truth, Rank rank, std::vector<T> const& data) {
  return truth.wrong<T>(rank, data);
}

/// Rounds to T after every addition, as the ring does.
template <class T>
std::vector<T> sum(std::vector<std::vector<T>> const& inputs) {
  std::vector<T> result = inputs.front();
  for (std::size_t rank = 1; rank < inputs.size(); ++rank)
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = element<T>(value(result[i]) + value(inputs[rank][i]));
  return result;
}

} // namespace

TEMPLATE_TEST_CASE("sums of exact data are right in any order of additions and in the type's own precision", "[exact]",
                   float, double, std::int32_t, std::int64_t, bf16, fp16) {
  for (Rank const ranks : {1, 2, 3, 7, 64, 256}) {
    Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(1009, ranks));
    ExactData const truth(problem, Operation::sum, element_type_of<TestType>());
    auto all = inputs<TestType>(truth, problem);
    INFO(ranks << " ranks");
    CHECK(wrong(truth, 0, sum(all)) == 0);
    std::ranges::reverse(all);
    CHECK(wrong(truth, ranks - 1, sum(all)) == 0);
  }
}

TEST_CASE("elements of exact data are distinct as long as the type has room", "[exact]") {
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(100003, 2));
  ExactData const truth(problem, Operation::sum, ElementType::float32);
  for (auto const& data : inputs<float>(truth, problem)) {
    CHECK(std::set<float>(data.begin(), data.end()).size() == data.size());
    CHECK(std::ranges::min(data) < 0);
  }
}

TEMPLATE_TEST_CASE("what goes wrong in collectives is found", "[exact]", float, bf16, fp16, std::int64_t) {
  Rank const ranks = 3;
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(1009, ranks));
  ExactData const truth(problem, Operation::sum, element_type_of<TestType>());
  auto const all = inputs<TestType>(truth, problem);
  auto const right = sum(all);
  REQUIRE(wrong(truth, 0, right) == 0);

  auto one = right;
  one[1008] = element<TestType>(value(one[1008]) + 1);
  CHECK(wrong(truth, 0, one) == 1);
  auto shifted = right;
  std::ranges::rotate(shifted, shifted.begin() + 1);
  CHECK(wrong(truth, 0, shifted) > 900);
  CHECK(wrong(truth, 0, sum(std::vector{all[0], all[1]})) > 900);         // one is missing
  CHECK(wrong(truth, 0, sum(std::vector{all[0], all[1], all[1]})) > 900); // one twice, another one missing
  CHECK(wrong(truth, 0, all[0]) > 900);                                   // nothing was done
}

TEMPLATE_TEST_CASE("exchanged blocks and exchanged ranks are found on any number of ranks", "[exact]", float, bf16,
                   fp16) {
  // of bf16 63 ranks, of fp16 189 ranks are a multiple of the values that every one of them can contribute
  std::vector<Rank> counts{7, 14, 21, 63, 128, 189};
  if (std::is_same_v<TestType, float>) counts.push_back(6000); // which has fewer values than these ranks
  for (Rank const ranks : counts) {
    Index const elements = ranks < 1000 ? 128 * ranks : 3 * ranks;
    Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(elements, ranks));
    ExactData const truth(problem, Operation::sum, element_type_of<TestType>());
    INFO(ranks << " ranks");
    std::vector<TestType> one(static_cast<std::size_t>(elements));
    std::vector<double> sum(one.size(), 0);
    std::vector<std::vector<TestType>> kept;
    for (Rank rank = 0; rank < ranks; ++rank) {
      truth.fill<TestType>(rank, one);
      for (std::size_t i = 0; i < one.size(); ++i) sum[i] += value(one[i]);
      if (rank < 63) kept.push_back(one);
    }
    std::vector<TestType> right;
    for (double const each : sum) right.push_back(element<TestType>(each));
    REQUIRE(wrong(truth, 0, right) == 0);

    auto exchanged = right;
    auto const block = exchanged.begin() + (elements / ranks);
    std::swap_ranges(exchanged.begin(), block, block);
    CHECK(wrong(truth, 0, exchanged) > 0);
    for (std::size_t doubled = 1; doubled < kept.size(); ++doubled) { // rank 0 is left out in its stead
      auto mistaken = right;
      for (std::size_t i = 0; i < mistaken.size(); ++i)
        mistaken[i] = element<TestType>(sum[i] - value(kept[0][i]) + value(kept[doubled][i]));
      INFO("rank " << doubled << " twice");
      if (wrong(truth, 0, mistaken) == 0) FAIL_CHECK("nothing is found");
    }
  }
}

TEST_CASE("blocks that lie elsewhere and poisoned memory are found", "[exact]") {
  Problem const problem = Problem::on_one_node(Collective::all_gather, Partition::of_sizes({3, 0, 5}));
  ExactData const truth(problem, Operation::sum, ElementType::float32);
  auto const all = inputs<float>(truth, problem);
  std::vector<float> gathered(all[0].begin(), all[0].begin() + 3);
  gathered.insert(gathered.end(), all[2].begin() + 3, all[2].end());
  CHECK(wrong(truth, 1, gathered) == 0);
  CHECK(wrong(truth, 1, all[1]) == 8);
  CHECK(wrong(truth, 1, all[0]) == 5);
  CHECK(wrong(truth, 1, all[2]) == 3);
}

TEST_CASE("the poison of a minimum is not hidden by the minimum", "[exact]") {
  for (Operation const operation : {Operation::sum, Operation::max, Operation::min}) {
    Problem problem = Problem::on_one_node(Collective::server_push, server_partition(17, 2, 1));
    problem.servers = 1;
    ExactData const truth(problem, operation, ElementType::int32);
    auto const all = inputs<std::int32_t>(truth, problem);
    std::vector<std::int32_t> right, poisoned;
    auto const apply = [operation](std::int32_t a, std::int32_t b) {
      return operation == Operation::sum ? a + b : operation == Operation::max ? std::max(a, b) : std::min(a, b);
    };
    for (std::size_t i = 0; i < 17; ++i) {
      right.push_back(apply(all[0][i], all[1][i]));
      poisoned.push_back(apply(right[i], all[2][i])); // the server itself has nothing to add
    }
    CHECK(wrong(truth, 2, right) == 0);
    CHECK(wrong(truth, 2, poisoned) == 17);
  }
}

TEST_CASE("more ranks than a type can add up exactly are refused", "[exact]") {
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(1, 257));
  CHECK_THROWS_AS(ExactData(problem, Operation::sum, ElementType::bfloat16), InputError);
  CHECK_NOTHROW(ExactData(problem, Operation::sum, ElementType::float16));
}
