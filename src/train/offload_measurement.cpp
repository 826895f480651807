#include "train/offload_measurement.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "core/aligned_bytes.hpp"
#include "core/clock.hpp"
#include "core/file_queue.hpp"
#include "train/state_files.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace trainstone {

namespace {

double median_of(std::vector<double> values) {
  auto const middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Two requests' memory in pinned memory, and as much where kernels work.
class Requests {
public:
  Requests(MemoryLedger& ledger, std::uint64_t bytes)
      : m_bytes(file_footprint(bytes)),
        m_pinned(ledger, "measured requests", 2 * m_bytes + file_alignment),
        m_kernels(ledger, MemoryCategory::buffers, "measured copies", m_bytes) {
    std::span<std::byte> const all = from_file_alignment(m_pinned.take(m_pinned.capacity()));
    std::memset(all.data(), 1, 2 * m_bytes);
    m_in = all.first(m_bytes);
    m_out = all.subspan(m_bytes, m_bytes);
  }

  /// Of two copies, there and back.
  double copy(ExecutionSpace const& exec) {
    auto const start = std::chrono::steady_clock::now();
    copy_from_pinned(exec, m_out, m_kernels.bytes().data());
    copy_to_pinned(exec, m_kernels.bytes().data(), m_out);
    exec.fence("trainstone::train::measure_offload: the copies are timed");
    return seconds_since(start);
  }

  std::uint64_t bytes() const { return m_bytes; }
  std::span<std::byte> in() const { return m_in; }
  std::span<std::byte> out() const { return m_out; }

private:
  std::uint64_t m_bytes;
  PinnedMemory m_pinned;
  Allocation m_kernels;
  std::span<std::byte> m_in, m_out;
};

/// Reads and writes in turn, as an update does.
class TimedRound {
public:
  double read = 0, write = 0; ///< in s

  void run(FileQueue& queue, Requests const& requests, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      read += seconds_of(queue, queue.read(i * requests.bytes(), requests.in()));
      write += seconds_of(queue, queue.write(i * requests.bytes(), requests.out()));
    }
  }

private:
  static double seconds_of(FileQueue& queue, FileQueue::Ticket ticket) {
    auto const start = std::chrono::steady_clock::now();
    queue.wait(ticket);
    return seconds_since(start);
  }
};

} // namespace

MeasuredOffload measure_offload(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                                OffloadMeasurement const& measurement) {
  std::optional<Requests> requests;
  std::optional<ScratchFile> file;
  std::uint64_t count = 0;
  collectively(communicator, [&] {
    requests.emplace(ledger, measurement.request_bytes);
    count = std::max<std::uint64_t>(1, measurement.file_bytes / requests->bytes());
    file.emplace(measurement.files, count * requests->bytes());
  });
  FileQueue queue(*file);
  for (std::uint64_t i = 0; i < count; ++i) queue.wait(queue.write(i * requests->bytes(), requests->out()));
  std::vector<double> copies, reads, writes;
  for (int number = 0; number <= measurement.rounds; ++number) {
    barrier(communicator);
    TimedRound round;
    round.run(queue, *requests, count);
    double const copied = requests->copy(exec);
    if (number == 0) continue;
    copies.push_back(copied);
    reads.push_back(round.read);
    writes.push_back(round.write);
  }
  std::vector<double> seconds{median_of(copies), median_of(reads), median_of(writes)};
  control_all_reduce(exec, communicator, Operation::max, seconds);
  double const request = static_cast<double>(requests->bytes()), all = static_cast<double>(count) * request;
  return {{2 * request / seconds[0], all / seconds[1], all / seconds[2]}, files_of_ranks(exec, communicator, &*file)};
}

} // namespace trainstone
