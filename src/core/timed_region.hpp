#pragma once

// A region for Kokkos Tools that is also a span of computation on the timeline. Its name is made only if Kokkos Tools
// or a recording needs it.

#include "core/region.hpp"
#include "core/timeline.hpp"

#include <Kokkos_Core.hpp>

#include <optional>
#include <string>

namespace trainstone {

class TimedRegion {
public:
  /// \param[in] name called only if the name is needed; returns "trainstone::area::step"
  template <class Name>
  explicit TimedRegion(Name const& name) {
    if (Kokkos::Tools::profileLibraryLoaded()) m_region.emplace(std::string(name()));
    m_span = Span(Lane::compute, name);
  }
  TimedRegion(TimedRegion const&) = delete;
  TimedRegion& operator=(TimedRegion const&) = delete;

private:
  std::optional<ScopedRegion> m_region;
  Span m_span;
};

} // namespace trainstone
