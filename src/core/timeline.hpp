#pragma once

// The timeline of a rank, for traces. Owns the events of the process while a Recording lives. Promises: without a
// Recording, a span costs one branch and its name is not made; the memory of a recording is known before it begins.
// Does not write files.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trainstone {

/// `compute` and `wait` are what the calling thread does, one inside of the other. A `collective` goes from its start
/// to its end, and a `slot` of activations from forward to backward; any number of them is open at a time. A `file` is
/// read or written by a thread of its own.
enum class Lane { compute, wait, collective, slot, file };

/// Nanoseconds since the recording began.
struct TimelineEvent {
  Lane lane = Lane::compute;
  std::string name;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Until it ends, spans are recorded; one at a time. Any thread may end spans.
class Recording {
public:
  using Time = std::chrono::steady_clock::time_point;

  /// \param[in] most_events  number of events that are kept, the first ones; later events are only counted
  /// \throws Error if another recording lives
  explicit Recording(std::size_t most_events);
  Recording(Recording const&) = delete;
  Recording& operator=(Recording const&) = delete;
  ~Recording();

  /// Another one for every recording of the process.
  std::uint64_t number() const { return m_number; }
  void add(Lane lane, std::string const& name, Time begin, Time end);
  /// Spans that end from now on are neither kept nor counted. Events that were recorded stay.
  void end();

  /// Events that are kept, in the order of their ends.
  std::size_t size() const;
  TimelineEvent event(std::size_t number) const;
  std::vector<TimelineEvent> events() const;
  /// Events beyond those that could be kept.
  std::uint64_t left_out() const;

  /// Bytes that this number of events takes. The texts of the few names come on top.
  static std::uint64_t bytes_of(std::size_t events) { return events * sizeof(Kept); }

private:
  struct Kept {
    std::int64_t begin, end; ///< as in TimelineEvent
    std::uint32_t name;      ///< its place in m_names
    Lane lane;
  };

  std::uint64_t m_number;
  Time m_begin = std::chrono::steady_clock::now();
  mutable std::mutex m_mutex;
  std::size_t m_most;
  std::uint64_t m_left_out = 0;
  std::vector<Kept> m_events;
  std::unordered_map<std::string, std::uint32_t> m_places; ///< of names
  std::vector<std::string> m_names;
};

namespace Impl {
inline std::atomic<Recording*> recording{nullptr};
}

/// The time from construction to end() or to destruction. A span that outlives the recording is not recorded.
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
