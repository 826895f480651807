#pragma once

// A host that looks like a device, whose kernels and copies are still under way when the host looks at their events.

#include "comm/execution/buffers.hpp"

#include <random>

namespace trainstone::test {

/// While it lives, what an event stands for seems to be under way at about every other look, or at every one until it
/// is released: at the end of its life.
class HeldEvents {
public:
  enum class Until { chance, release };
  explicit HeldEvents(Until until, unsigned seed = 1)
      : m_random(seed), m_hook(held_events(), [this, until] {
          ++m_looks;
          return until == Until::release || m_random() % 2 == 0;
        }) {}
  int looks() const { return m_looks; }

private:
  std::minstd_rand m_random;
  int m_looks = 0;
  trainstone::HeldEvents::Scoped m_hook;
};

} // namespace trainstone::test
