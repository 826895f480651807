#pragma once

// Dynamic loss scaling: a power of two that gradients are multiplied with before they are stored in 16 bits, as large
// as they allow. Owns the rule by which it grows and shrinks; who multiplies, divides and skips is the step loop.
// Source: Mixed Precision Training, arXiv:1710.03740.

#include "parallel/config.hpp"

#include <algorithm>
#include <cstdint>

namespace trainstone {

class LossScaler {
public:
  explicit LossScaler(PrecisionConfig const& precision)
      : m_dynamic(precision.loss_scale == LossScaling::dynamic),
        m_scale(m_dynamic ? precision.initial_loss_scale : 1.0),
        m_growth_interval(precision.growth_interval) {}

  bool is_dynamic() const { return m_dynamic; }
  /// 1 without scaling.
  double scale() const { return m_scale; }
  /// Steps that were skipped since the last one that was not.
  std::int64_t skipped_in_a_row() const { return m_skipped_in_a_row; }

  /// After every step: half the scale if gradients overflowed, twice the scale after growth_interval steps in which
  /// they did not. Stays within 1 and 2^40, so that gradients of fp32 and the scale itself have room.
  void observe(bool overflow) {
    if (!m_dynamic) return;
    m_skipped_in_a_row = overflow ? m_skipped_in_a_row + 1 : 0;
    m_good_steps = overflow ? 0 : m_good_steps + 1;
    if (overflow) m_scale = std::max(least, m_scale / 2);
    if (m_good_steps < m_growth_interval) return;
    m_good_steps = 0;
    m_scale = std::min(most, m_scale * 2);
  }

private:
  static constexpr double least = 1, most = 0x1p40;

  bool m_dynamic;
  double m_scale;
  std::int64_t m_growth_interval;
  std::int64_t m_good_steps = 0, m_skipped_in_a_row = 0;
};

} // namespace trainstone
