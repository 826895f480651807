#pragma once

// The messages of a schedule, round by round, as MPI requests. Owns the requests, made once (persistent) or anew every
// time, and their order after kernels: MPI is given memory on which none works any longer. Where messages are staged,
// a send is copied out and then MPI's, a receive is MPI's and then copied in. For src/comm/execution/execution.cpp
// alone.

#include "comm/execution/buffers.hpp"
#include "comm/execution/mpi.hpp"
#include "comm/execution/staged_messages.hpp"
#include "comm/schedule/counters.hpp"
#include "comm/schedule/schedule.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace trainstone::Impl {

class MessageRounds {
public:
  /// Elements that lie one after the other.
  struct Contiguous {
    std::byte* memory;
    Index elements;
  };
  /// Where a slice lies from one of its elements on, to the end of the run or of the slice.
  using Address = std::function<Contiguous(Slice const&, Index element)>;
  struct Settings {
    MPI_Comm comm;
    int tag;
    ElementType type;
    Index longest_message;
    bool persistent;                                  ///< never where messages are staged
    std::shared_ptr<NetworkPorts const> ports;        ///< of an emulated network, which keep sends back; null: none
    std::shared_ptr<CopyInstances const> copies = {}; ///< null: MPI is given the memory itself
    std::span<std::byte> staging = {};                ///< staging_bytes() of the schedule, if it is not
  };

  MessageRounds(Schedule const& schedule, Topology const& topology, Settings const& settings, Address const& address);
  MessageRounds(MessageRounds const&) = delete;
  MessageRounds& operator=(MessageRounds const&) = delete;
  /// Withdraws what is posted.
  ~MessageRounds();

  bool empty(std::size_t round) const { return m_offsets[round] == m_offsets[round + 1]; }
  /// The messages that are posted from now on come after all that is enqueued on `exec` now.
  void come_after(ExecutionSpace const& exec);
  /// Posts the receives of a round, then its sends, and counts what is sent. MPI is given them later, by test() and
  /// wait(), where they come after what has not ended; the sends, too, on an emulated network and where they are
  /// staged.
  void post(std::size_t round, Traffic& traffic);
  /// Whether MPI was given all messages of the round.
  bool all_given() const { return !m_waits && m_posted_end == m_round_end; }
  /// Whether the round's messages are complete. Does not wait.
  bool test(std::size_t round);
  void wait(std::size_t round);
  /// Cancels the receives and forgets the sends of a round that is posted and not complete: their memory may still be
  /// read, but for sends that MPI was not given yet; copies have ended. Nothing can be posted then.
  void withdraw() noexcept;
  /// Gives MPI an opportunity to go on with whatever it has begun.
  void let_mpi_work() const;

private:
  /// A message: a move, or a part of one that is too long.
  struct Message {
    Action action;
    Link link;
    Rank peer;
    std::uint64_t bytes;
    std::byte* memory;
    MPI_Datatype datatype; ///< the elements', or one of m_datatypes
    int count;             ///< of the datatype
  };

  bool has_begun();
  void begin();
  void add(Move const& move, Link link, Address const& address);
  std::byte* staged(std::vector<Contiguous> const& runs);
  MPI_Datatype in_pieces(std::vector<Contiguous> const& runs);
  void prepare(Message const& message, MPI_Request& request) const;
  void start(Message const& message, MPI_Request& request) const;
  bool hand_over();
  NetworkPorts::Time depart(Message const& message) const;
  bool test_staged(std::size_t round, bool all_given);
  int size(std::size_t round) const { return static_cast<int>(m_offsets[round + 1] - m_offsets[round]); }

  Settings m_settings;
  Rank m_rank;
  std::vector<Message> m_messages;              ///< by round; receives before sends
  std::vector<MPI_Request> m_requests;          ///< one per message
  std::vector<MPI_Datatype> m_datatypes;        ///< of messages in several pieces
  std::vector<std::size_t> m_offsets;           ///< where each round's messages begin, and the end
  std::vector<NetworkPorts::Time> m_departures; ///< of sends on an emulated network, like m_messages; else empty
  std::optional<StagedMessages> m_staged;       ///< like m_messages
  std::optional<InstanceEvent> m_before;        ///< where they are not staged: what the messages come after
  bool m_waits = false;                         ///< for that, with the round
  std::vector<int> m_ended;                     ///< of a round's requests, as MPI tells
  std::size_t m_ends = 0;                       ///< of requests of this round, where messages are staged
  std::optional<std::size_t> m_last_in;         ///< the message of this round that was copied in last
  std::vector<bool> m_given;                    ///< of this round's messages, whether MPI has it
  std::size_t m_posted_begin = 0; ///< the messages that MPI was given and that are not known to be complete
  std::size_t m_posted_end = 0;
  std::size_t m_ready_end = 0; ///< of those between m_posted_end and this, the ports keep some back
  std::size_t m_round_end = 0; ///< those between m_ready_end and this are being copied out
};

} // namespace trainstone::Impl
