#include "kernels/optimizer.hpp"

#include "core/counters.hpp"
#include "core/error.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <type_traits>

using namespace trainstone;
using namespace trainstone::test;

namespace {

template <class GradientType, class ParameterType>
struct Storage {
  using Gradient = GradientType;
  using Parameter = ParameterType;
};
using Storages = std::tuple<Storage<float, float>, Storage<bf16, bf16>, Storage<fp16, fp16>, Storage<float, bf16>,
                            Storage<float, fp16>>;

AdamStep adam_step(std::int64_t step) {
  return {.learning_rate = 0.01F,
          .beta1 = 0.9F,
          .beta2 = 0.95F,
          .epsilon = 1e-8F,
          .weight_decay = 0.1F,
          .gradient_scale = 0.5F,
          .step = step};
}

reference::AdamStep widened(AdamStep const& step) {
  return {.learning_rate = static_cast<double>(step.learning_rate),
          .beta1 = static_cast<double>(step.beta1),
          .beta2 = static_cast<double>(step.beta2),
          .epsilon = static_cast<double>(step.epsilon),
          .weight_decay = static_cast<double>(step.weight_decay),
          .gradient_scale = static_cast<double>(step.gradient_scale),
          .step = step.step};
}

reference::SgdStep widened(SgdStep const& step) {
  return {.learning_rate = static_cast<double>(step.learning_rate),
          .momentum = static_cast<double>(step.momentum),
          .weight_decay = static_cast<double>(step.weight_decay),
          .gradient_scale = static_cast<double>(step.gradient_scale)};
}

/// Parameters and two states on the device and, in fp64, of the reference.
template <class Parameter>
struct State {
  explicit State(Index count)
      : master(random_values(count, 1)),
        first(count, 0.0F),
        second(count, 0.0F),
        rounded(std::is_same_v<Parameter, float> ? 0 : count, Parameter{}),
        expected(test::widened(random_values(count, 1))),
        expected_first(expected.size()),
        expected_second(expected.size()) {}

  Vector<Parameter> parameter() const {
    if constexpr (std::is_same_v<Parameter, float>)
      return master.vector();
    else
      return rounded.vector();
  }

  /// Whether the parameters are the master copy, rounded once.
  bool is_rounded_master() const {
    std::vector<float> const values = master.values();
    if constexpr (std::is_same_v<Parameter, float>)
      return true;
    else
      return std::ranges::equal(rounded.values(), cast_to<Parameter>(values), {}, &Parameter::bits, &Parameter::bits);
  }

  template <class T>
  static std::vector<T> cast_to(std::vector<float> const& values) {
    std::vector<T> result;
    for (float const value : values) result.push_back(from_float<T>(value));
    return result;
  }

  DeviceTensor<float> master, first, second;
  DeviceTensor<Parameter> rounded;
  std::vector<double> expected, expected_first, expected_second;
};

/// Gradients of a step as they are stored, and what they stand for. Their size is 0.5 to 2, so that with a decay of at
/// most 0.2 none comes near to zero, where Adam's direction depends on the last bit.
template <class T>
struct Gradients {
  Gradients(Index count, std::int64_t step) : values(make(count, step)), stored(values) {}

  static std::vector<T> make(Index count, std::int64_t step) {
    std::vector<T> result;
    for (float const value : random_values(count, 10 + static_cast<std::uint64_t>(step), -1.5, 1.5))
      result.push_back(from_float<T>(value + std::copysign(0.5F, value)));
    return result;
  }
  std::vector<double> widened() const {
    std::vector<double> result;
    for (T const value : values) result.push_back(static_cast<double>(to_float(value)));
    return result;
  }

  std::vector<T> values;
  DeviceTensor<T> stored;
};

constexpr Index counts[] = {0, 1, 7, 8191, 8193, 20011}; // around the chunk of one team

/// Bounds of the errors of m, v and parameters after `steps` steps from |parameter| <= 2. Scaled gradients are 0.25 to
/// 1 and, with Adam's decay of 0.1 * 2 added in up to 3 roundings, 0.05 to 1.2; so m and v, below 1.5, are rounded at
/// most 4 times per step on top of what their gradient is off: `gradient_roundings` * 1.2 and 0.1 * the parameter's
/// error. By Cauchy's inequality the direction is at most sqrt(sum a_i^2 / b_i) < 1.1 with the weights a_i, b_i that
/// the moments give to step i of 5; it changes by at most twice that times the gradients' relative error, and is itself
/// rounded 8 times, as the corrections are, for which 3 per step more is room. The parameter is rounded twice per step.
struct AdamBounds {
  AdamBounds(std::int64_t steps, double gradient_roundings, double smallest) {
    auto const n = static_cast<double>(steps);
    double const gradient = gradient_roundings * 1.2 * roundoff + 0.1 * 40 * roundoff; // < 40: the tests check it
    moment = n * (4 * 1.5 * roundoff + 3 * gradient);
    parameter = n * (2 * 2 * roundoff + 0.01 * 1.1 * (2 * gradient / smallest + (8 + 3 * n) * roundoff));
  }
  double moment, parameter;
};

} // namespace

TEMPLATE_LIST_TEST_CASE("AdamW and Adam equal their references over several steps", "[optimizer]", Storages) {
  using Gradient = typename TestType::Gradient;
  using Parameter = typename TestType::Parameter;
  ExecutionSpace const exec;
  for (bool const decoupled : {true, false}) {
    auto const update = decoupled ? adamw_update<Gradient, Parameter> : adam_update<Gradient, Parameter>;
    auto const reference_update = decoupled ? reference::adamw_update : reference::adam_update;
    for (Index const count : counts) {
      State<Parameter> state(count);
      for (std::int64_t step = 1; step <= 5; ++step) {
        Gradients<Gradient> const gradients(count, step);
        update(exec, gradients.stored.vector(), state.master.vector(), state.first.vector(), state.second.vector(),
               state.parameter(), adam_step(step));
        reference_update(gradients.widened(), state.expected, state.expected_first, state.expected_second,
                         widened(adam_step(step)));
        AdamBounds const bounds = decoupled ? AdamBounds(step, 1, 0.25) : AdamBounds(step, 3, 0.05);
        INFO((decoupled ? "AdamW, " : "Adam, ") << count << " elements, step " << step);
        CHECK(bounds.parameter < 40 * roundoff);
        CHECK(mismatches<float, double>(state.first.values(), state.expected_first, bounds.moment) == "");
        CHECK(mismatches<float, double>(state.second.values(), state.expected_second, bounds.moment) == "");
        CHECK(mismatches<float, double>(state.master.values(), state.expected, bounds.parameter) == "");
        CHECK(state.is_rounded_master());
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("gradient descent equals its reference with momentum and without", "[optimizer]", Storages) {
  using Gradient = typename TestType::Gradient;
  using Parameter = typename TestType::Parameter;
  ExecutionSpace const exec;
  for (float const momentum : {0.0F, 0.9F}) {
    SgdStep const step{.learning_rate = 0.01F, .momentum = momentum, .weight_decay = 0.1F, .gradient_scale = 0.5F};
    for (Index const count : counts) {
      State<Parameter> state(count);
      Vector<float> const velocity = momentum > 0 ? state.first.vector() : Vector<float>();
      for (int steps = 1; steps <= 5; ++steps) {
        Gradients<Gradient> const gradients(count, steps);
        sgd_update<Gradient, Parameter>(exec, gradients.stored.vector(), state.master.vector(), velocity,
                                        state.parameter(), step);
        reference::sgd_update(gradients.widened(), state.expected, state.expected_first, widened(step));
        // |g| <= 1.2 in 3 roundings, |velocity| <= 1.2 (1 + 0.9 + ... + 0.9^4) < 5 in 2 more per step, the parameter's
        // 2 in one, its change in one
        double const velocity_bound = steps * (3 * 1.2 + 2 * 5) * roundoff;
        double const bound = steps * (2 * roundoff + 0.01 * (velocity_bound + 5 * roundoff));
        INFO("momentum " << momentum << ", " << count << " elements, step " << steps);
        if (momentum > 0)
          CHECK(mismatches<float, double>(state.first.values(), state.expected_first, velocity_bound) == "");
        CHECK(mismatches<float, double>(state.master.values(), state.expected, bound) == "");
        CHECK(state.is_rounded_master());
      }
    }
  }
}

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

TEST_CASE("changes that 16 bits cannot hold add up in the master copy", "[optimizer]") {
  ExecutionSpace const exec;
  DeviceTensor<bf16> const gradient(3, from_float<bf16>(1.0F)), parameter(3, from_float<bf16>(1.0F));
  DeviceTensor<float> const master(3, 1.0F);
  SgdStep const step{.learning_rate = 0x1p-12F, .momentum = 0, .weight_decay = 0, .gradient_scale = 1};
  for (int i = 0; i < 64; ++i) // of bf16, 1 - 2^-8 is the next number below 1
    sgd_update<bf16, bf16>(exec, gradient.vector(), master.vector(), Vector<float>(), parameter.vector(), step);
  CHECK(master.values() == std::vector<float>(3, 1 - 0x1p-6F));
  CHECK(to_float(parameter.values()[2]) == 1 - 0x1p-6F);
}

TEST_CASE("the first step of AdamW and of Adam moves by the learning rate, whatever the gradient's size",
          "[optimizer]") {
  ExecutionSpace const exec;
  for (auto const update : {adamw_update<float, float>, adam_update<float, float>}) {
    for (float const size : {1e-3F, 1.0F, 1e3F}) {
      DeviceTensor<float> const gradient(std::vector<float>{size, -size}), parameter(2, 0.0F), m(2, 0.0F), v(2, 0.0F);
      update(exec, gradient.vector(), parameter.vector(), m.vector(), v.vector(), parameter.vector(), adam_step(1));
      // epsilon is 2e-5 of the smallest scaled gradient
      CHECK(mismatches<float, double>(parameter.values(), std::vector<double>{-0.01, 0.01}, 0.01 * 2.1e-5) == "");
    }
  }
}

TEST_CASE("AdamW decays by lr times the decay, Adam's decay is a gradient like any other", "[optimizer]") {
  ExecutionSpace const exec;
  DeviceTensor<float> const gradient(1, 0.0F), decoupled(1, 2.0F), regularised(1, 2.0F), m(1, 0.0F), v(1, 0.0F);
  adamw_update<float, float>(exec, gradient.vector(), decoupled.vector(), m.vector(), v.vector(), decoupled.vector(),
                             adam_step(1));
  CHECK(m.values() == std::vector<float>{0.0F});
  // two roundings of the parameter, and those of its change
  CHECK(mismatches<float, double>(decoupled.values(), std::vector<double>{2 - 0.01 * 0.1 * 2}, 4 * roundoff) == "");
  adam_update<float, float>(exec, gradient.vector(), regularised.vector(), m.vector(), v.vector(), regularised.vector(),
                            adam_step(1));
  CHECK(mismatches<float, double>(regularised.values(), std::vector<double>{2 - 0.01}, 4 * roundoff) == "");
}

TEST_CASE("padding stays zero under every optimizer", "[optimizer]") {
  ExecutionSpace const exec;
  std::vector<float> const zeros(3, 0.0F);
  DeviceTensor<float> const gradient(zeros), parameter(zeros), m(zeros), v(zeros);
  Vector<float> const p = parameter.vector();
  adamw_update<float, float>(exec, gradient.vector(), p, m.vector(), v.vector(), p, adam_step(1));
  adam_update<float, float>(exec, gradient.vector(), p, m.vector(), v.vector(), p, adam_step(1));
  sgd_update<float, float>(exec, gradient.vector(), p, m.vector(), p, {0.01F, 0.9F, 0.1F, 1.0F});
  sgd_update<float, float>(exec, gradient.vector(), p, Vector<float>(), p, {0.01F, 0.0F, 0.1F, 1.0F});
  CHECK(parameter.values() == zeros);
}

TEST_CASE("optimizers declare one pass over gradient, master copy, state and 16-bit parameter", "[optimizer]") {
  ExecutionSpace const exec;
  constexpr Index count = 5;
  auto const bytes = [](auto const& work) {
    std::uint64_t const before = counters().bytes[Phase::optimizer];
    work();
    return (counters().bytes[Phase::optimizer] - before) / count;
  };
  State<float> single(count);
  State<bf16> mixed(count);
  Gradients<float> const wide(count, 1);
  Gradients<bf16> const narrow(count, 1);
  Vector<float> const none;
  auto const m = single.first.vector(), v = single.second.vector();
  CHECK(bytes([&] {
          adamw_update<float, float>(exec, wide.stored.vector(), single.parameter(), m, v, single.parameter(),
                                     adam_step(1));
        }) == 28);
  CHECK(bytes([&] {
          adam_update<bf16, bf16>(exec, narrow.stored.vector(), mixed.master.vector(), m, v, mixed.parameter(),
                                  adam_step(1));
        }) == 28);
  CHECK(bytes([&] {
          sgd_update<float, bf16>(exec, wide.stored.vector(), mixed.master.vector(), m, mixed.parameter(),
                                  {0.01F, 0.9F, 0.1F, 1.0F});
        }) == 22);
  CHECK(bytes([&] {
          sgd_update<float, float>(exec, wide.stored.vector(), single.parameter(), none, single.parameter(),
                                   {0.01F, 0.0F, 0.1F, 1.0F});
        }) == 12);
}

TEST_CASE("optimizers refuse other lengths, a step before the first and fp32 parameters beside a master copy",
          "[optimizer]") {
  ExecutionSpace const exec;
  DeviceTensor<float> const threes(3, 0.0F), others(3, 0.0F), fours(4, 0.0F);
  auto const three = threes.vector(), other = others.vector(), four = fours.vector();
  CHECK_THROWS_AS((adamw_update<float, float>(exec, three, three, four, three, three, adam_step(1))), Error);
  CHECK_THROWS_AS((adamw_update<float, float>(exec, three, three, three, three, three, adam_step(0))), Error);
  CHECK_THROWS_AS((adam_update<float, float>(exec, three, three, three, four, three, adam_step(1))), Error);
  CHECK_THROWS_AS((adam_update<float, float>(exec, three, three, three, three, other, adam_step(1))), Error);
  CHECK_THROWS_AS((sgd_update<float, float>(exec, three, four, three, four, {0.1F, 0.9F, 0, 1})), Error);
  CHECK_THROWS_AS((sgd_update<float, float>(exec, three, three, Vector<float>(), three, {0.1F, 0.9F, 0, 1})), Error);
  CHECK_THROWS_AS((sgd_update<float, float>(exec, three, three, three, three, {0.1F, 0, 0, 1})), Error);
}
