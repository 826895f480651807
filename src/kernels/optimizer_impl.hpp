#pragma once

// Bodies of optimizer.hpp; included by optimizer.cpp alone.

#include "kernels/optimizer.hpp"

#include "kernels/common/flat.hpp"
#include "kernels/common/large_body.hpp"
#include "kernels/common/shapes.hpp"

#include <cmath>
#include <type_traits>

namespace trainstone {

namespace Impl {

/// 1 / (1 - beta^step)
inline float bias_correction(float beta, std::int64_t step) {
  return static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(step))));
}

// Rules: what happens to one element. operator() takes its gradient and its fp32 values: the parameter, and behind it
// what the optimizer keeps of it. It updates the values.

template <bool decoupled_decay>
struct AdamRule {
  static constexpr int values = 3;
  AdamStep step;
  float m_correction;
  float v_correction;

  explicit AdamRule(AdamStep const& numbers)
      : step(numbers),
        m_correction(bias_correction(step.beta1, step.step)),
        v_correction(bias_correction(step.beta2, step.step)) {}

  KOKKOS_INLINE_FUNCTION void operator()(float gradient, float (&value)[values]) const {
    float const p = value[0];
    float const g =
        decoupled_decay ? gradient * step.gradient_scale : gradient * step.gradient_scale + step.weight_decay * p;
    float const m = step.beta1 * value[1] + (1.0F - step.beta1) * g;
    float const v = step.beta2 * value[2] + (1.0F - step.beta2) * (g * g);
    float const direction = m * m_correction / (Kokkos::sqrt(v * v_correction) + step.epsilon);
    value[0] = p - step.learning_rate * (decoupled_decay ? direction + step.weight_decay * p : direction);
    value[1] = m;
    value[2] = v;
  }
};

struct SgdRule {
  static constexpr int values = 1;
  SgdStep step;

  KOKKOS_INLINE_FUNCTION void operator()(float gradient, float (&value)[values]) const {
    float const p = value[0];
    value[0] = p - step.learning_rate * (gradient * step.gradient_scale + step.weight_decay * p);
  }
};

struct MomentumRule {
  static constexpr int values = 2;
  SgdStep step;

  KOKKOS_INLINE_FUNCTION void operator()(float gradient, float (&value)[values]) const {
    float const p = value[0];
    value[1] = step.momentum * value[1] + (gradient * step.gradient_scale + step.weight_decay * p);
    value[0] = p - step.learning_rate * value[1];
  }
};

/// What a rule does to vectors. The parameter that the model computes with is the master copy, values[0], if it is
/// fp32, and else that one rounded.
template <class Rule, class Gradient, class Parameter>
struct Update {
  static constexpr int packet = packet_of<Gradient, float>;
  static constexpr bool rounds = !std::is_same_v<Parameter, float>;
  Rule rule;
  Gradient const* gradient;
  Parameter* parameter;
  float* values[Rule::values];

  bool is_aligned() const {
    bool aligned = aligned_for(packet, gradient, parameter);
    for (float const* vector : values) aligned = aligned && aligned_for(packet, vector);
    return aligned;
  }

  KOKKOS_INLINE_FUNCTION Update of_piece(bool decays) const {
    Update update = *this;
    if (!decays) update.rule.step.weight_decay = 0.0F;
    return update;
  }

  template <int n>
  KOKKOS_INLINE_FUNCTION void operator()(Index i, Width<n>) const {
    Packet<float, n> const g = load_floats<n>(gradient + i);
    Packet<float, n> all[Rule::values];
    for (int k = 0; k < Rule::values; ++k) all[k] = load_floats<n>(values[k] + i);
    for (int j = 0; j < n; ++j) {
      float value[Rule::values];
      for (int k = 0; k < Rule::values; ++k) value[k] = all[k][j];
      rule(g[j], value);
      for (int k = 0; k < Rule::values; ++k) all[k][j] = value[k];
    }
    for (int k = 0; k < Rule::values; ++k) store_floats<n>(values[k] + i, all[k]);
    if constexpr (rounds) store_floats<n>(parameter + i, all[0]);
  }
};

/// What a kernel is told of the pieces that it goes over.
struct Pieces {
  int count = 0;
  UpdatePiece pieces[most_update_pieces] = {};

  Index begin() const { return count > 0 ? pieces[0].begin : 0; }
  Index end() const { return count > 0 ? pieces[count - 1].end : 0; }
  /// The first piece that ends behind element i; `count` if there is none.
  KOKKOS_INLINE_FUNCTION int first_behind(Index i) const {
    int before = 0, behind = count; // the pieces before end before i
    while (before < behind) {
      int const middle = (before + behind) / 2;
      if (pieces[middle].end <= i)
        before = middle + 1;
      else
        behind = middle;
    }
    return before;
  }
  std::uint64_t elements() const {
    Index sum = 0;
    for (int i = 0; i < count; ++i) sum += pieces[i].end - pieces[i].begin;
    return static_cast<std::uint64_t>(sum);
  }
};

/// Those of an update of `count` elements.
inline Pieces pieces_of(std::span<UpdatePiece const> given, Index count) {
  UpdatePiece const all{0, count, true};
  if (given.empty()) given = {&all, 1};
  TRAINSTONE_REQUIRE(std::ssize(given) <= most_update_pieces, "optimizer: {} pieces", given.size());
  Pieces pieces;
  for (UpdatePiece const& piece : given) {
    Index const before = pieces.end();
    TRAINSTONE_REQUIRE(before <= piece.begin && piece.begin <= piece.end && piece.end <= count,
                       "optimizer: elements {} to {} of {} behind {}", piece.begin, piece.end, count, before);
    pieces.pieces[pieces.count++] = piece;
  }
  return pieces;
}

/// Updates the pieces; what is between them stays. A team goes over the pieces in its chunk one after the other.
template <class Chunks = FlatChunks, class Body>
void launch_update(Kernel const& kernel, ExecutionSpace const& exec, Pieces const& pieces, Body const& body) {
  bool const aligned = body.is_aligned();
  Index const begin = pieces.begin(), end = pieces.end();
  launch_for(
      kernel, for_large_body(Chunks::template policy<Body>(exec, end - begin)), KOKKOS_LAMBDA(Team const& team) {
        Index const first = begin + team.league_rank() * Chunks::template elements<Body>;
        Index const last = minimum(first + Chunks::template elements<Body>, end);
        for (int i = pieces.first_behind(first); i < pieces.count && pieces.pieces[i].begin < last; ++i) {
          UpdatePiece const& piece = pieces.pieces[i];
          Index const from = first < piece.begin ? piece.begin : first, to = minimum(last, piece.end);
          if (from < to) Chunks::run(team, from, to, aligned, body.of_piece(piece.decays));
        }
      });
}

/// What the update of one element reads and writes; `states` are fp32 values of the optimizer.
template <class Gradient, class Parameter>
constexpr std::uint64_t update_bytes(std::uint64_t states) {
  std::uint64_t const rounded = std::is_same_v<Parameter, float> ? 0 : sizeof(Parameter);
  return sizeof(Gradient) + 2 * sizeof(float) * (1 + states) + rounded;
}

template <class Gradient, class Parameter>
void require_update_shapes(Vector<Gradient const> const& gradient, Vector<float> const& master,
                           Vector<Parameter> const& parameter) {
  require_shape("optimizer: master", master, {extent(gradient, 0)});
  require_shape("optimizer: parameter", parameter, {extent(gradient, 0)});
  if constexpr (std::is_same_v<Parameter, float>)
    TRAINSTONE_REQUIRE(parameter.data() == master.data(),
                       "optimizer: fp32 parameters at {} are not their master copy at {}",
                       static_cast<void const*>(parameter.data()), static_cast<void const*>(master.data()));
}

template <bool decoupled_decay, class Gradient, class Parameter>
void adam_like_update(ExecutionSpace const& exec, char const* label, Vector<Gradient const> const& gradient,
                      Vector<float> const& master, Vector<float> const& m, Vector<float> const& v,
                      Vector<Parameter> const& parameter, AdamStep const& step) {
  require_update_shapes(gradient, master, parameter);
  require_shape("optimizer: m", m, {extent(gradient, 0)});
  require_shape("optimizer: v", v, {extent(gradient, 0)});
  TRAINSTONE_REQUIRE(step.step >= 1, "optimizer: step {}, steps count from 1", step.step);
  Pieces const pieces = pieces_of(step.pieces, extent(gradient, 0));
  Kernel const kernel{.label = label,
                      .phase = Phase::optimizer,
                      .flops = 17 * pieces.elements(),
                      .bytes = pieces.elements() * update_bytes<Gradient, Parameter>(2)};
  using Rule = AdamRule<decoupled_decay>;
  launch_update(kernel, exec, pieces,
                Update<Rule, Gradient, Parameter>{
                    Rule(step), gradient.data(), parameter.data(), {master.data(), m.data(), v.data()}});
}

} // namespace Impl

template <class Gradient, class Parameter>
void adamw_update(ExecutionSpace const& exec, Vector<Gradient const> gradient, Vector<float> master, Vector<float> m,
                  Vector<float> v, Vector<Parameter> parameter, AdamStep const& step) {
  Impl::adam_like_update<true>(exec, "trainstone::optimizer::adamw", gradient, master, m, v, parameter, step);
}

template <class Gradient, class Parameter>
void adam_update(ExecutionSpace const& exec, Vector<Gradient const> gradient, Vector<float> master, Vector<float> m,
                 Vector<float> v, Vector<Parameter> parameter, AdamStep const& step) {
  Impl::adam_like_update<false>(exec, "trainstone::optimizer::adam", gradient, master, m, v, parameter, step);
}

template <class Gradient, class Parameter>
void sgd_update(ExecutionSpace const& exec, Vector<Gradient const> gradient, Vector<float> master,
                Vector<float> velocity, Vector<Parameter> parameter, SgdStep const& step) {
  bool const has_momentum = step.momentum != 0.0F;
  Impl::require_update_shapes(gradient, master, parameter);
  Impl::require_shape("optimizer: velocity", velocity, {has_momentum ? Impl::extent(gradient, 0) : 0});
  Impl::Pieces const pieces = Impl::pieces_of(step.pieces, Impl::extent(gradient, 0));
  Kernel const kernel{.label = has_momentum ? "trainstone::optimizer::sgd_momentum" : "trainstone::optimizer::sgd",
                      .phase = Phase::optimizer,
                      .flops = (has_momentum ? 7 : 5) * pieces.elements(),
                      .bytes = pieces.elements() * Impl::update_bytes<Gradient, Parameter>(has_momentum ? 1 : 0)};
  using Impl::Update, Impl::MomentumRule, Impl::SgdRule;
  if (has_momentum)
    Impl::launch_update(kernel, exec, pieces,
                        Update<MomentumRule, Gradient, Parameter>{
                            {step}, gradient.data(), parameter.data(), {master.data(), velocity.data()}});
  else
    Impl::launch_update(
        kernel, exec, pieces,
        Update<SgdRule, Gradient, Parameter>{{step}, gradient.data(), parameter.data(), {master.data()}});
}

} // namespace trainstone
