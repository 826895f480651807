#pragma once

// Dynamic loss scaling. Gradients are multiplied with a power of two before they are stored in 16 bits. The power is as
// large as gradients allow. Owns the rule by which it grows and shrinks. The step loop multiplies, divides and skips.
// Source: Mixed Precision Training, arXiv:1710.03740.

#include "parallel/plan/config.hpp"

#include <algorithm>
#include <cstdint>

namespace trainstone {

class LossScaler {
public:
  /// The state that the scaler carries from step to step.
  struct State {
    double scale = 1;
    std::int64_t good_steps = 0; ///< since the last overflow or growth
    std::int64_t skipped_in_a_row = 0;
    bool operator==(State const&) const = default;
  };

  explicit LossScaler(PrecisionConfig const& precision)
      : m_dynamic(precision.loss_scale == LossScaling::dynamic),
        m_growth_interval(precision.growth_interval),
        m_state{.scale = m_dynamic ? precision.initial_loss_scale : 1.0} {}

  bool is_dynamic() const { return m_dynamic; }
  /// 1 without scaling.
  double scale() const { return m_state.scale; }
  /// Number of skipped steps since the last step that was not skipped.
  std::int64_t skipped_in_a_row() const { return m_state.skipped_in_a_row; }
  State const& state() const { return m_state; }
  /// Continues from this state.
  void resume(State const& state) { m_state = state; }

  /// After every step: half the scale if gradients overflowed, twice the scale after growth_interval steps in which
  /// they did not. Stays within 1 and 2^40, so that gradients of fp32 and the scale itself have room.
  void observe(bool overflow) {
    if (!m_dynamic) return;
    auto& [scale, good_steps, skipped_in_a_row] = m_state;
    skipped_in_a_row = overflow ? skipped_in_a_row + 1 : 0;
    good_steps = overflow ? 0 : good_steps + 1;
    if (overflow) scale = std::max(least, scale / 2);
    if (good_steps < m_growth_interval) return;
    good_steps = 0;
    scale = std::min(most, scale * 2);
  }

private:
  static constexpr double least = 1, most = 0x1p40;

  bool m_dynamic;
  std::int64_t m_growth_interval;
  State m_state;
};

} // namespace trainstone
