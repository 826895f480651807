// Updates of parts of vectors, and of pieces of which some decay.

#include "core/counters.hpp"
#include "core/error.hpp"
#include "kernels/optimizer.hpp"
#include "support/optimizer_state.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <iterator>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

constexpr Index elements_in_pieces = 20011;

std::vector<UpdatePiece> few_pieces() {
  return {{3, 4, true},        {4, 11, false},       {12, 4099, true},
          {4099, 4100, false}, {4101, 8192, true},   {8192, 8193, false},
          {9000, 9000, true},  {9000, 19999, false}, {20000, elements_in_pieces - 3, true}};
}

/// As many as a kernel takes, some of them empty, and some gaps.
std::vector<UpdatePiece> most_pieces() {
  std::vector<UpdatePiece> pieces;
  Index end = 5;
  for (Index i = 0; i < most_update_pieces; ++i) {
    Index const begin = end + (i % 3 == 0 ? 2 : 0);
    end = begin + i * 37 % 211;
    pieces.push_back({begin, end, i % 2 == 0});
  }
  return pieces;
}

} // namespace

TEMPLATE_LIST_TEST_CASE("parts that begin anywhere become what the whole becomes", "[optimizer]", Storages) {
  using Gradient = typename TestType::Gradient;
  using Parameter = typename TestType::Parameter;
  ExecutionSpace const exec;
  constexpr Index count = 8203, borders[] = {0, 1, 8, 19, 24, 4099, 4100, count};
  State<Parameter> whole(count), cut(count);
  Gradients<Gradient> const gradients(count, 1);
  auto const part = []<class T>(Vector<T> const& vector, Index begin, Index size) {
    return Vector<T>(vector.data() + begin, static_cast<std::size_t>(size));
  };
  auto const update = [&](State<Parameter> const& state, Index begin, Index size, bool sgd) {
    Vector<Gradient const> const gradient = part(gradients.stored.vector(), begin, size);
    Vector<float> const master = part(state.master.vector(), begin, size), m = part(state.first.vector(), begin, size);
    Vector<Parameter> const parameter = part(state.parameter(), begin, size);
    if (sgd)
      sgd_update<Gradient, Parameter>(exec, gradient, master, m, parameter, {0.01F, 0.9F, 0.1F, 0.5F});
    else
      adamw_update<Gradient, Parameter>(exec, gradient, master, m, part(state.second.vector(), begin, size), parameter,
                                        adam_step(3));
  };
  for (bool const sgd : {false, true}) {
    update(whole, 0, count, sgd);
    for (std::size_t i = 0; i + 1 < std::size(borders); ++i) update(cut, borders[i], borders[i + 1] - borders[i], sgd);
    CHECK(cut.master.values() == whole.master.values());
    CHECK(cut.first.values() == whole.first.values());
    CHECK(cut.second.values() == whole.second.values());
    CHECK(cut.is_rounded_master());
  }
}

TEMPLATE_LIST_TEST_CASE("pieces become what updates of their own make of them, and what is between them stays",
                        "[optimizer]", Storages) {
  using Gradient = typename TestType::Gradient;
  using Parameter = typename TestType::Parameter;
  ExecutionSpace const exec;
  constexpr Index count = elements_in_pieces;
  bool const few = GENERATE(true, false);
  std::vector<UpdatePiece> const pieces = few ? few_pieces() : most_pieces();
  REQUIRE(pieces.back().end < count);
  std::vector<bool> changes(count);
  for (UpdatePiece const& piece : pieces)
    for (Index i = piece.begin; i < piece.end; ++i) changes[static_cast<std::size_t>(i)] = true;
  auto const part = []<class T>(Vector<T> const& vector, UpdatePiece const& piece) {
    return Vector<T>(vector.data() + piece.begin, static_cast<std::size_t>(piece.end - piece.begin));
  };
  Gradients<Gradient> const gradients(count, 1);
  Vector<Gradient const> const gradient = gradients.stored.vector();
  for (bool const sgd : {false, true}) {
    State<Parameter> at_once(count), apart(count);
    AdamStep adam = adam_step(2);
    SgdStep momentum{0.01F, 0.9F, 0.1F, 0.5F};
    auto const update = [&](State<Parameter> const& state, auto const& cut) {
      if (sgd)
        sgd_update<Gradient, Parameter>(exec, cut(gradient), cut(state.master.vector()), cut(state.first.vector()),
                                        cut(state.parameter()), momentum);
      else
        adamw_update<Gradient, Parameter>(exec, cut(gradient), cut(state.master.vector()), cut(state.first.vector()),
                                          cut(state.second.vector()), cut(state.parameter()), adam);
    };
    for (UpdatePiece const& piece : pieces) {
      adam.weight_decay = momentum.weight_decay = piece.decays ? 0.1F : 0.0F;
      update(apart, [&](auto const& vector) { return part(vector, piece); });
    }
    adam.weight_decay = momentum.weight_decay = 0.1F;
    adam.pieces = momentum.pieces = pieces;
    std::uint64_t const launches = total_launches(counters()), flops = counters().flops[Phase::optimizer];
    update(at_once, [](auto const& vector) { return vector; });
    CHECK(total_launches(counters()) - launches == 1);
    auto const changed = static_cast<std::uint64_t>(std::ranges::count(changes, true));
    CHECK(counters().flops[Phase::optimizer] - flops == (sgd ? 7 : 17) * changed);
    CHECK(at_once.master.values() == apart.master.values());
    CHECK(at_once.first.values() == apart.first.values());
    CHECK(at_once.second.values() == apart.second.values());
    CHECK(at_once.rounded.values().size() == apart.rounded.values().size());
    std::vector<float> const after = at_once.master.values(), before = random_values(count, 1);
    for (std::size_t i = 0; i < changes.size(); ++i)
      if (!changes[i] && after[i] != before[i]) FAIL("element " << i << " is in no piece, and changed");
  }
}

TEST_CASE("updates refuse pieces that overlap, leave the vectors or are too many", "[optimizer]") {
  ExecutionSpace const exec;
  DeviceTensor<float> const values(200, 0.0F);
  auto const x = values.vector();
  auto const update = [&](std::vector<UpdatePiece> const& pieces) {
    AdamStep step = adam_step(1);
    step.pieces = pieces;
    adamw_update<float, float>(exec, x, x, x, x, x, step);
  };
  CHECK_NOTHROW(update({{0, 3, true}, {3, 200, false}}));
  CHECK_THROWS_AS(update({{0, 3, true}, {2, 200, false}}), Error);
  CHECK_THROWS_AS(update({{0, 201, true}}), Error);
  CHECK_THROWS_AS(update({{-1, 4, true}}), Error);
  CHECK_THROWS_AS(update({{4, 3, true}}), Error);
  std::vector<UpdatePiece> many;
  for (Index i = 0; i < most_update_pieces; ++i) many.push_back({i, i + 1, i % 2 == 0});
  CHECK_NOTHROW(update(many));
  many.push_back({most_update_pieces, most_update_pieces + 1, true});
  CHECK_THROWS_AS(update(many), Error);
}
