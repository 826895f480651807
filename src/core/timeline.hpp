#pragma once

// What a rank did when, for traces. Owns the events of the process while a Recording lives. Promises: where nothing is
// recorded, a span costs one branch and its name is not made. Does not write files.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace trainstone {

/// What the calling thread computes or waits for, one inside of the other; collectives from start to end, any number of
/// them at a time.
enum class Lane { compute, wait, collective };

/// Nanoseconds since the recording began.
struct TimelineEvent {
  Lane lane = Lane::compute;
  std::string name;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// While it lives, spans are recorded; one at a time. Any thread may end spans.
class Recording {
public:
  using Time = std::chrono::steady_clock::time_point;

  /// \throws Error if there is one already
  Recording();
  Recording(Recording const&) = delete;
  Recording& operator=(Recording const&) = delete;
  ~Recording();

  /// Another one for every recording of the process.
  std::uint64_t number() const { return m_number; }
  void add(Lane lane, std::string name, Time begin, Time end);
  /// Of all spans that have ended, in the order of their ends.
  std::vector<TimelineEvent> events() const;

private:
  std::uint64_t m_number;
  Time m_begin = std::chrono::steady_clock::now();
  mutable std::mutex m_mutex;
  std::vector<TimelineEvent> m_events;
};

namespace Impl {
inline std::atomic<Recording*> recording{nullptr};
}

/// A time from its construction to end(), or to its own end. What outlives the recording is not in it.
class Span {
public:
  Span() = default;
  /// \param[in] name called if something is recorded; returns a text
  template <class Name>
  Span(Lane lane, Name const& name) {
    Recording const* const recording = Impl::recording.load(std::memory_order_relaxed);
    if (!recording) return;
    m_recording = recording->number();
    m_lane = lane;
    m_name = name();
    m_begin = std::chrono::steady_clock::now();
  }
  Span(Span&& other) noexcept { swap(other); }
  Span& operator=(Span&& other) noexcept {
    end();
    swap(other);
    return *this;
  }
  ~Span() { end(); }

  void end() noexcept {
    if (m_recording != 0) record();
  }

private:
  void swap(Span& other) noexcept {
    std::swap(m_recording, other.m_recording);
    std::swap(m_lane, other.m_lane);
    std::swap(m_name, other.m_name);
    std::swap(m_begin, other.m_begin);
  }
  void record() noexcept;

  std::uint64_t m_recording = 0; ///< its number; 0: not begun, or over
  Lane m_lane = Lane::compute;
  std::string m_name;
  Recording::Time m_begin{};
};

} // namespace trainstone
