#pragma once

// The executor: runs one rank's schedule on MPI point-to-point messages. Owns the requests of the round in flight;
// the buffers are the caller's. Promises: all receives and sends of a round are posted together, receives first; a
// buffer is fenced (this exec instance only) before MPI touches it; a message's length is checked before it becomes
// an int. Counts messages, bytes and reductions where they start. Buffers must be host-accessible for now.

#include "comm/communicator.hpp"
#include "comm/counters.hpp"
#include "comm/element.hpp"
#include "comm/schedule.hpp"
#include "core/views.hpp"

#include <cstddef>
#include <memory>
#include <utility>

namespace trainstone {

namespace Impl {
struct Requests;
}

struct ExecutionOptions {
  Purpose purpose = Purpose::training;
  /// Elements; the same on all ranks. Longer moves are cut into several messages, which are counted as such.
  Index longest_message = longest_mpi_message;
};

/// A collective in execution; may be started again after it has ended.
/// All ranks start the collectives of a communicator in the same order.
class Execution {
public:
  /// \param[in]     exec     reductions are enqueued here    \param[in] communicator must outlive the execution
  /// \param[in]     schedule of this rank in this communicator
  /// \param[in,out] data     (schedule.elements)             \param[out] scratch (at least schedule.scratch_elements)
  /// \throws Error if rank, ranks or extents differ from the schedule's, or the memory is not host-accessible
  template <class T>
  Execution(ExecutionSpace const& exec, Communicator& communicator, Schedule schedule, Operation operation,
            Vector<T> data, Vector<T> scratch, ExecutionOptions const& options = {})
      : Execution(exec, communicator, std::move(schedule), operation, element_type_of<T>(),
                  Memory{reinterpret_cast<std::byte*>(data.data()), static_cast<Index>(data.extent(0))},
                  Memory{reinterpret_cast<std::byte*>(scratch.data()), static_cast<Index>(scratch.extent(0))},
                  options) {}
  Execution(Execution&&) noexcept;
  Execution& operator=(Execution&&) = delete;
  /// Must not be in flight.
  ~Execution();

  /// Posts the first round: waits for what exec has enqueued, not for messages.
  void start();
  /// Advances as far as is possible without waiting for messages; true when the collective has ended.
  bool progress();
  /// Waits for the end. On return the result is complete for work enqueued on exec from now on: the last
  /// reductions are enqueued there and not fenced.
  void wait();
  void run() {
    start();
    wait();
  }

  Schedule const& schedule() const { return m_schedule; }

private:
  struct Memory {
    std::byte* data;
    Index elements;
  };
  enum class Wait { no, yes };

  Execution(ExecutionSpace const& exec, Communicator& communicator, Schedule schedule, Operation operation,
            ElementType type, Memory data, Memory scratch, ExecutionOptions const& options);

  bool in_flight() const { return m_round < m_schedule.rounds.size(); }
  bool advance(Wait wait);
  void post_round();
  void post_message(Move const& move);
  bool round_received(Wait wait);
  void enqueue_local_moves();
  template <class T>
  void enqueue_local_move(Move const& move);
  std::byte* address(Slice const& slice) const;

  ExecutionSpace m_exec;
  Communicator* m_communicator;
  Schedule m_schedule;
  Operation m_operation;
  ElementType m_type;
  Memory m_data;
  Memory m_scratch;
  ExecutionOptions m_options;
  std::unique_ptr<Impl::Requests> m_requests;
  std::size_t m_round; // schedule.rounds.size(): not in flight
  int m_tag = 0;
  bool m_kernels_enqueued = false; // since the last fence
};

} // namespace trainstone
