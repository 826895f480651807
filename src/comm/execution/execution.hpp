#pragma once

// The executor: runs one rank's schedule on MPI point-to-point messages and, where a schedule asks for it, on memory
// that the ranks of a node share. Owns the requests; the buffers are the caller's. Promises: all receives and sends of
// a round are posted together, receives first, after the earlier kernels of this exec instance have ended; a rank comes
// to a barrier of its node when its earlier kernels have ended; it gives its ticket back when its last ones have; only
// wait() waits for kernels; a message's length is checked before it becomes an int. Where the communicator's messages
// are staged (comm/schedule/message_buffers.hpp), MPI is given copies of them in pinned memory, and copies, messages
// and kernels overlap. Counts messages, bytes and reductions where they start.

#include "comm/execution/buffers.hpp"
#include "comm/execution/communicator.hpp"
#include "comm/execution/pieces.hpp"
#include "comm/execution/shared_segment.hpp"
#include "comm/schedule/counters.hpp"
#include "comm/schedule/element.hpp"
#include "comm/schedule/message_buffers.hpp"
#include "comm/schedule/schedule.hpp"
#include "core/stored.hpp"
#include "core/timeline.hpp"
#include "core/views.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace trainstone {

enum class Worker; // comm/execution/reduce.hpp

namespace Impl {
class CallComparison;
class MessageRounds;
} // namespace Impl

struct ExecutionOptions {
  Purpose purpose = Purpose::training;
  /// Elements; the same on all ranks. Longer moves are cut into several messages, which are counted as such.
  Index longest_message = longest_mpi_message;
  /// The segment in which data lies (and scratch, if neighbours read it), for schedules that need shared memory. It
  /// must outlive the execution.
  SharedSegment* segment = nullptr;
  /// Where the elements of data lie in the buffer; the same on all ranks. Empty: one after the other.
  Pieces pieces = {};
  /// Whether messages are prepared once and started again in every run. Otherwise they are made anew in every run, as
  /// staged messages always are.
  bool persistent = true;
  /// Pinned memory of staging_bytes(), where messages are staged; of this execution alone while it is in flight.
  std::span<std::byte> staging = {};
  /// Whether data and scratch are host memory, whatever memory kernels use. Then the calling thread adds them up, and
  /// MPI gets this memory itself, even if other collectives are staged. For a few values that the host needs.
  bool on_host = false;
  /// An instance of the caller, or null. The collective begins after all work that is enqueued there at its start, or
  /// after the event that start() gets. Work that is enqueued there after its end comes after it. For executions on an
  /// instance of their own. The caller's instance must outlive them.
  ExecutionSpace const* caller = nullptr;
  /// A tag that executions of a communicator have in common; null: a tag of its own. Their messages meet in the order
  /// in which the executions are started, whichever of them a rank starts: a channel with several buffers. For
  /// schedules of one round.
  std::shared_ptr<SharedTag> tag = nullptr;
  /// Whether ranks may start it before or after other executions of the communicator, as each likes. Then nobody checks
  /// the order.
  bool any_order = false;
};

/// A collective in execution; may be started again after it has ended.
/// All ranks make, start and wait for the executions of a communicator in the same order, or use an ExecutionQueue.
/// bf16 and fp16 are added in fp32 and rounded once per reduction: once per hop of a ring, once in all by a combine.
/// Delay points: "trainstone::comm::start", "...::receive", "...::send", "...::barrier", "...::wait" and the kernels'.
class Execution {
public:
  /// \param[in]     exec     reductions are enqueued here    \param[in] communicator must outlive the execution
  /// \param[in]     schedule of this rank in this communicator
  /// \param[in,out] data     (schedule.elements), or, with pieces, as long as these demand
  /// \param[out]    scratch  (at least schedule.scratch_elements)
  /// \throws Error if rank, ranks or extents differ from the schedule's, the memory cannot be given to MPI, the staging
  ///         is too small, or the schedule needs shared memory and what neighbours look at does not lie in
  ///         options.segment
  template <class T>
  Execution(ExecutionSpace const& exec, Communicator& communicator, Schedule schedule, Operation operation,
            Vector<T> data, Vector<T> scratch, ExecutionOptions const& options = {})
      : Execution(exec, communicator, std::move(schedule), operation, element_type_of<T>(),
                  Memory{reinterpret_cast<std::byte*>(data.data()), static_cast<Index>(data.extent(0))},
                  Memory{reinterpret_cast<std::byte*>(scratch.data()), static_cast<Index>(scratch.extent(0))},
                  options) {}
  /// The same of elements whose type is known at run time; data and scratch are stored alike.
  Execution(ExecutionSpace const& exec, Communicator& communicator, Schedule schedule, Operation operation,
            StoredVector data, StoredVector scratch, ExecutionOptions const& options = {})
      : Execution(exec, communicator, std::move(schedule), operation, element_type_of(data.storage), memory_of(data),
                  memory_of(scratch), options) {
    TRAINSTONE_REQUIRE(data.storage == scratch.storage, "data is stored as {}, scratch as {}", to_string(data.storage),
                       to_string(scratch.storage));
  }
  Execution(Execution&&) noexcept;
  Execution& operator=(Execution&&) = delete;
  /// Must not be in flight: ends the process with a message if it is. Only while an exception unwinds, and after an
  /// error of the communicator, what is posted is withdrawn instead; what was sent may still be read by others, and
  /// the other ranks that take part must end, too.
  ~Execution();

  /// Begins; waits neither for what exec has enqueued nor for other ranks. The first round is posted at once, or by
  /// progress() or wait(): once what exec has enqueued, and options.caller, has ended; where the communicator checks
  /// the order of calls, once all ranks are known to call the same; once neighbours no longer look at what had this
  /// run's place among the segment's tickets.
  /// \throws Error if the segment has no place for one more
  /// \param[in] ready  of the caller's work: what this comes after, instead of all that options.caller has enqueued
  void start(std::optional<InstanceEvent> const& ready = {});
  /// Advances as far as is possible without waiting for others; true when the collective has ended.
  /// \throws CollectiveError on all ranks if the order of calls is checked and ranks call different ones
  bool progress();
  /// Waits for the end; throws as progress() does. On return the result is complete for work enqueued on exec from now
  /// on: the last reductions are enqueued there and not fenced.
  void wait();
  /// start() and wait().
  void run();

  /// Not after start(), progress() or wait() has thrown: what was posted is withdrawn, and the execution is of no more
  /// use.
  bool in_flight() const { return m_comparison || m_round < m_schedule.rounds.size() || m_ends; }
  Schedule const& schedule() const { return m_schedule; }
  /// "all_reduce ring, 4000 bytes": on timelines, where it is a collective from start to end, and a wait in wait().
  std::string name() const;

private:
  struct Memory {
    std::byte* data;
    Index elements;
  };
  static Memory memory_of(StoredVector vector) { return {static_cast<std::byte*>(vector.data), vector.size}; }
  enum class Wait { no, yes };

  Execution(ExecutionSpace const& exec, Communicator& communicator, Schedule schedule, Operation operation,
            ElementType type, Memory data, Memory scratch, ExecutionOptions const& options);

  void require_extents() const;
  void require_shared_buffers() const;
  void give_up();
  template <class Work>
  auto or_end(Work const& work);
  bool advance(Wait wait);
  bool may_begin(Wait wait);
  void begin_round();
  void end_turn_if_given();
  bool end(Wait wait);
  bool kernels_have_ended(Wait wait);
  bool come_to_barrier(Wait wait);
  void arrive();
  bool round_complete(Wait wait);
  bool all_neighbours_came(Wait wait);
  template <class IsDone>
  bool until(Wait wait, IsDone const& is_done);
  void enqueue_moves(std::size_t first, std::size_t last);
  Worker worker() const;
  template <class T>
  void enqueue_move(Move const& move);
  template <class T>
  void enqueue_part(Move const& move, Range const& part);
  template <class T>
  void enqueue_combine(Move const& move, Range const& part);
  std::byte* address(Slice const& slice, Index element) const;
  std::byte* neighbour_address(Slice const& slice, Index element, std::size_t neighbour) const;

  ExecutionSpace m_exec;
  Communicator* m_communicator;
  Schedule m_schedule;
  Operation m_operation;
  ElementType m_type;
  Memory m_data;
  Memory m_scratch;
  MessageBuffers m_buffers; ///< of this execution
  ExecutionOptions m_options;
  std::shared_ptr<SharedTag> m_tag;
  CollectiveCall m_call;
  Span m_flight;                                      ///< while in flight
  std::optional<InstanceEvent> m_ready;               ///< of the caller's: what it begins after
  std::unique_ptr<Impl::CallComparison> m_comparison; ///< with the other ranks' calls, while under way
  std::unique_ptr<Impl::MessageRounds> m_messages;
  std::optional<std::uint64_t> m_turn; ///< of the tag, until MPI has been given the messages
  std::size_t m_round;                 ///< schedule.rounds.size(): all are complete
  InstanceEvent m_kernels;             ///< of this execution, that neighbours wait for
  std::uint64_t m_ticket = 0;          ///< of the segment, if shared
  std::uint64_t m_barriers = 0;        ///< that all have come to in this run
  unsigned m_looks = 0;                ///< in vain, at neighbours and at what this comes after
  bool m_begun = false;                ///< the first round is posted
  bool m_failed = false;               ///< for ever
  bool m_kernels_enqueued = false;     ///< since others were last let touch the buffers, or m_kernels recorded
  bool m_kernels_run = false;          ///< those that m_kernels stands for, as far as this has looked
  bool m_arrived = false;              ///< at the barrier that is this round
  bool m_ends = false;                 ///< all rounds are complete, and neighbours do not know it yet
};

} // namespace trainstone
