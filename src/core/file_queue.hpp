#pragma once

// Reads and writes of a file that go on while the caller computes. Owns the thread that does them, one after the other,
// in the order in which they were asked for: a read sees all writes that were asked for before it, and may use their
// memory. Promises: memory is used until wait() has returned for the request or a later one. Counts nothing but time.

#include "core/scratch_file.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>

namespace trainstone {

/// In s.
struct FileSeconds {
  double read = 0, write = 0;
  double total() const { return read + write; }
};

class FileQueue {
public:
  /// The number of a request: from 1.
  using Ticket = std::uint64_t;

  /// \param[in] file  must outlive the object
  explicit FileQueue(ScratchFile& file);
  FileQueue(FileQueue const&) = delete;
  FileQueue& operator=(FileQueue const&) = delete;
  /// Requests that were not begun are dropped.
  ~FileQueue();

  Ticket read(std::uint64_t offset, std::span<std::byte> out) { return add({offset, out, true}); }
  Ticket write(std::uint64_t offset, std::span<std::byte> bytes) { return add({offset, bytes, false}); }
  /// Whether the request has ended, and all before it.
  bool is_done(Ticket ticket);
  /// Returns when the request has ended, and all before it. \throws Error that it or an earlier one ended with
  void wait(Ticket ticket);
  /// How long all requests that have ended took, without their time in the queue.
  FileSeconds seconds();

private:
  struct Request {
    std::uint64_t offset;
    std::span<std::byte> bytes;
    bool reads;
  };

  Ticket add(Request const& request);
  void work();

  ScratchFile* m_file;
  std::mutex m_mutex;
  std::condition_variable m_asked, m_ended;
  std::deque<Request> m_requests; ///< those that have not ended
  Ticket m_last = 0;              ///< asked for
  Ticket m_done = 0;              ///< ended
  FileSeconds m_seconds;
  std::exception_ptr m_error; ///< the first
  bool m_stops = false;
  std::thread m_thread;
};

} // namespace trainstone
