// The lecture on named models against the published digits and against closed forms that are written down here once
// more.

#include "parallel/taught_models.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>
#include <cmath>

using namespace trainstone;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

ModelRow const& row_of(TaughtModels const& lecture, std::string_view name) {
  return *std::ranges::find(lecture.models, name, &ModelRow::name);
}

/// V h + s h + L (12 h^2 + 13 h) + 2 h
std::int64_t parameters(std::int64_t layers, std::int64_t h, std::int64_t s, std::int64_t vocab) {
  return vocab * h + s * h + layers * (12 * h * h + 13 * h) + 2 * h;
}

} // namespace

TEST_CASE("named models have the counts of their shapes", "[lecture]") {
  TaughtModels const lecture = compare_taught_models();
  CHECK(lecture.models.size() == 8);
  auto const computed = [&](std::string_view name) { return row_of(lecture, name).computed; };
  CHECK(computed("gpt2") == 124439808);
  CHECK(computed("gpt2-medium") == 354823168);
  CHECK(computed("gpt2-large") == 774030080);
  CHECK(computed("gpt2-xl") == 1557611200);
  CHECK(computed("bert-large") == parameters(24, 1024, 512, 30522));
  CHECK(computed("turing-nlg") == parameters(78, 4256, 1024, 50257));
  CHECK(computed("gpt3-6.7b") == parameters(32, 4096, 2048, 50257));
  CHECK(computed("gpt3-175b") == parameters(96, 12288, 2048, 50257));
  // names are rounded to two or three digits; BERT's and GPT-2 XL's are 4 % short
  for (ModelRow const& row : lecture.models) {
    INFO(row.name);
    CHECK_THAT(row.nominal, WithinRel(static_cast<double>(row.computed), 0.045));
  }
}

TEST_CASE("computation and memory of the four taught models are the published ones", "[lecture]") {
  TaughtModels const lecture = compare_taught_models();
  struct Taught {
    std::string_view name;
    double billions, computation, gigabytes;
  };
  for (Taught const& taught : {Taught{"bert-large", 0.32, 1, 5.12}, Taught{"gpt2-xl", 1.5, 4.7, 24},
                               Taught{"turing-nlg", 17.2, 54, 275}, Taught{"gpt3-175b", 175, 547, 2800}}) {
    INFO(taught.name);
    ModelRow const& row = row_of(lecture, taught.name);
    CHECK(row.in_lecture);
    CHECK(row.nominal == taught.billions * 1e9);
    // printed with two (4.7, 54) and three digits
    CHECK_THAT(row.taught_computation, WithinAbs(taught.computation, taught.computation < 10 ? 0.05 : 0.5));
    CHECK_THAT(row.taught_bytes / 1e9, WithinAbs(taught.gigabytes, 0.5));
    CHECK(row.exact_bytes_16 == 16 * row.computed);
    CHECK(row.exact_bytes_20 == 20 * row.computed);
  }
  CHECK(std::ranges::count_if(lecture.models, &ModelRow::in_lecture) == 4);
}

TEST_CASE("exact computation is that of matrix products and attention per token", "[lecture]") {
  auto const flops = [](double layers, double h, double s, double vocab) {
    return 72 * layers * h * h + 6 * vocab * h + 12 * layers * s * h;
  };
  TaughtModels const lecture = compare_taught_models();
  double const bert = flops(24, 1024, 512, 30522);
  CHECK_THAT(row_of(lecture, "gpt3-175b").exact_computation, WithinRel(flops(96, 12288, 2048, 50257) / bert, 1e-14));
  CHECK_THAT(row_of(lecture, "gpt2-xl").exact_computation, WithinRel(flops(48, 1600, 1024, 50257) / bert, 1e-14));
  CHECK(row_of(lecture, "bert-large").exact_computation == 1);
}

TEST_CASE("the state of GPT-3 is 700 + 700 + 700 + 350 + 350 GB", "[lecture]") {
  TaughtModels const lecture = compare_taught_models();
  std::vector<double> taught;
  std::int64_t exact = 0;
  for (StateRow const& row : lecture.states) {
    taught.push_back(row.taught / 1e9);
    exact += row.exact;
  }
  CHECK(taught == std::vector<double>{700, 700, 700, 350, 350});
  CHECK(exact == 16 * parameters(96, 12288, 2048, 50257));
}

TEST_CASE("a card holds what is at most its size, in the unit in which it is counted", "[lecture]") {
  using Cards = std::vector<int>;
  CHECK(cards_that_hold(16e9, gigabyte) == Cards{16, 32, 40, 80});
  CHECK(cards_that_hold(16e9 + 1, gigabyte) == Cards{32, 40, 80});
  CHECK(cards_that_hold(16e9 + 1, gibibyte) == Cards{16, 32, 40, 80});
  CHECK(cards_that_hold(16 * gibibyte + 1, gibibyte) == Cards{32, 40, 80});
  CHECK(cards_that_hold(80e9 + 1, gigabyte).empty());
}
