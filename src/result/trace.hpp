#pragma once

// Timelines of all ranks as one file in Chrome's trace format, which Perfetto shows. Each rank is a process.
// Computation and waits are lanes of nested events. Collectives and uses of activation slots are events that may
// overlap. Every process says which deck it trained, so that a reader knows whose trace it is. Texts come in pieces, so
// that neither a rank nor the writer of the file ever holds a whole text.

#include "core/atomic_file.hpp"
#include "core/timeline.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace trainstone {

/// The events of one rank, as JSON objects separated by commas. Times in us since the recording began.
class TraceText {
public:
  /// \param[in] name       "rank 3, stage 1": what viewers call the rank
  /// \param[in] deck_hash  deck_hash() of the run
  /// \param[in] event      of a number below `events`: called once for each, in order
  TraceText(std::int64_t rank, std::string name, std::string deck_hash, std::size_t events,
            std::function<TimelineEvent(std::size_t)> event);
  /// The next piece, of at most 4096 events; empty: there is none.
  std::string next();

private:
  std::int64_t m_rank;
  std::string m_name;
  std::string m_deck_hash;
  std::size_t m_events;
  std::function<TimelineEvent(std::size_t)> m_event;
  std::size_t m_next = 0;
  bool m_has_begun = false;
};

/// The file: a JSON array of the pieces of all ranks.
class TraceFile {
public:
  /// \throws Error if it cannot be made there
  explicit TraceFile(std::filesystem::path const& path);
  void add(std::string const& piece);
  /// Gives the file its name. Without this call nothing stays.
  void finish();

private:
  AtomicFile m_file;
  bool m_is_empty = true;
};

} // namespace trainstone
