#include "core/timeline.hpp"

#include "core/error.hpp"

namespace trainstone {

Recording::Recording() {
  static std::atomic<std::uint64_t> recordings{0};
  m_number = ++recordings;
  Recording* none = nullptr;
  bool const is_first = Impl::recording.compare_exchange_strong(none, this);
  TRAINSTONE_REQUIRE(is_first, "a timeline is recorded already, {} events so far", none->events().size());
}

Recording::~Recording() { Impl::recording = nullptr; }

void Recording::add(Lane lane, std::string name, Time begin, Time end) {
  auto const since_begin = [this](Time time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time - m_begin).count();
  };
  std::lock_guard const lock(m_mutex);
  m_events.push_back({lane, std::move(name), since_begin(begin), since_begin(end)});
}

std::vector<TimelineEvent> Recording::events() const {
  std::lock_guard const lock(m_mutex);
  return m_events;
}

/// Without memory for one more event the run ends: std::terminate.
void Span::record() noexcept {
  auto const end = std::chrono::steady_clock::now();
  Recording* const recording = Impl::recording;
  if (recording && recording->number() == m_recording) recording->add(m_lane, std::move(m_name), m_begin, end);
  m_recording = 0;
}

} // namespace trainstone
