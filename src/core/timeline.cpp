#include "core/timeline.hpp"

#include "core/error.hpp"

namespace trainstone {

Recording::Recording(std::size_t most_events) : m_most(most_events) {
  static std::atomic<std::uint64_t> recordings{0};
  m_events.reserve(most_events);
  m_number = ++recordings;
  Recording* none = nullptr;
  bool const is_first = Impl::recording.compare_exchange_strong(none, this);
  TRAINSTONE_REQUIRE(is_first, "a timeline is recorded already, {} events so far", none->size());
}

Recording::~Recording() { end(); }

void Recording::end() {
  Recording* mine = this;
  Impl::recording.compare_exchange_strong(mine, nullptr);
}

void Recording::add(Lane lane, std::string const& name, Time begin, Time end) {
  auto const since_begin = [this](Time time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time - m_begin).count();
  };
  std::lock_guard const lock(m_mutex);
  if (m_events.size() == m_most) {
    ++m_left_out;
    return;
  }
  auto const [place, is_new] = m_places.try_emplace(name, static_cast<std::uint32_t>(m_names.size()));
  if (is_new) m_names.push_back(name);
  m_events.push_back({since_begin(begin), since_begin(end), place->second, lane});
}

std::size_t Recording::size() const {
  std::lock_guard const lock(m_mutex);
  return m_events.size();
}

TimelineEvent Recording::event(std::size_t number) const {
  std::lock_guard const lock(m_mutex);
  Kept const& kept = m_events.at(number);
  return {kept.lane, m_names[kept.name], kept.begin, kept.end};
}

std::vector<TimelineEvent> Recording::events() const {
  std::vector<TimelineEvent> all;
  for (std::size_t i = 0; i < size(); ++i) all.push_back(event(i));
  return all;
}

std::uint64_t Recording::left_out() const {
  std::lock_guard const lock(m_mutex);
  return m_left_out;
}

/// Without memory for one more name the run ends: std::terminate.
void Span::record() noexcept {
  auto const end = std::chrono::steady_clock::now();
  Recording* const recording = Impl::recording;
  if (recording && recording->number() == m_recording) recording->add(m_lane, m_name, m_begin, end);
  m_recording = 0;
}

} // namespace trainstone
