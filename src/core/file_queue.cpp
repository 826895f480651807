#include "core/file_queue.hpp"

#include "core/clock.hpp"
#include "core/thread_without_signals.hpp"
#include "core/timeline.hpp"

namespace trainstone {

FileQueue::FileQueue(ScratchFile& file) : m_file(&file), m_thread(thread_without_signals([this] { work(); })) {}

FileQueue::~FileQueue() {
  {
    std::lock_guard const lock(m_mutex);
    m_stops = true;
  }
  m_asked.notify_one();
  m_thread.join();
}

FileQueue::Ticket FileQueue::add(Request const& request) {
  Ticket ticket = 0;
  {
    std::lock_guard const lock(m_mutex);
    m_requests.push_back(request);
    ticket = ++m_last;
  }
  m_asked.notify_one();
  return ticket;
}

bool FileQueue::is_done(Ticket ticket) {
  std::scoped_lock const lock(m_mutex);
  return m_done >= ticket;
}

void FileQueue::wait(Ticket ticket) {
  std::unique_lock lock(m_mutex);
  m_ended.wait(lock, [&] { return m_done >= ticket || m_error; });
  if (m_error) std::rethrow_exception(m_error);
}

FileSeconds FileQueue::seconds() {
  std::scoped_lock const lock(m_mutex);
  return m_seconds;
}

void FileQueue::work() {
  std::unique_lock lock(m_mutex);
  for (;;) {
    m_asked.wait(lock, [&] { return m_stops || !m_requests.empty(); });
    if (m_stops) return;
    Request const request = m_requests.front();
    lock.unlock();
    std::exception_ptr error;
    SteadyTime const begin = std::chrono::steady_clock::now();
    try {
      Span const span(Lane::file, [&] { return request.reads ? "read" : "write"; });
      if (request.reads)
        m_file->read(request.offset, request.bytes);
      else
        m_file->write(request.offset, request.bytes);
    } catch (...) {
      error = std::current_exception();
    }
    double const seconds = seconds_since(begin);
    lock.lock();
    (request.reads ? m_seconds.read : m_seconds.write) += seconds;
    m_requests.pop_front();
    ++m_done;
    if (error && !m_error) m_error = error;
    m_ended.notify_all();
  }
}

} // namespace trainstone
