#pragma once

// The order check of a communicator's collectives: ranks that call different collectives at the same place get an
// error that names the calls and the ranks, on every rank, instead of waiting for each other for ever. Behind
// Communicator::check_order and announce; works in a message space of its own. For src/comm/*.cpp alone.

#include "comm/execution/communicator.hpp"
#include "comm/execution/mpi.hpp"

#include <deque>
#include <memory>
#include <mutex>

namespace trainstone::Impl {

class CallComparison;

/// A communicator's comparisons that have no result yet, in the order of the calls. A progress thread looks at them,
/// too.
struct OpenComparisons {
  std::mutex mutex; ///< guards the rest, and the comparisons that are in it
  std::deque<CallComparison*> in_order;
};

/// The exchange of one call between all ranks, under way. Ranks make exchanges in the order of their calls and get
/// results in that order. If several calls differ, all ranks report the first.
class CallComparison {
public:
  /// Posts the exchange, waits for nobody. The communicator checks its order and outlives this.
  CallComparison(CommunicatorHandle& handle, Rank ranks, CollectiveCall const& call);
  CallComparison(CallComparison const&) = delete;
  CallComparison& operator=(CallComparison const&) = delete;
  ~CallComparison();

  /// Whether all ranks have made this call. Does not wait.
  /// \throws CollectiveError on all ranks, naming the calls and ranks, if they differ in this call or an earlier one;
  ///         Error if these are a part of the world
  bool test();
  /// Until all ranks have made their call. \throws as test() does
  void wait();

private:
  struct Exchanged;

  bool is_exchanged();
  void require_equal() const;

  CommunicatorHandle* m_handle;
  std::shared_ptr<OpenComparisons> m_open;
  std::uint64_t m_number; ///< of the call
  std::unique_ptr<Exchanged> m_exchanged;
  MPI_Request m_request = MPI_REQUEST_NULL;
};

/// The communicator's destructor: ranks that still call collectives are told that this one has left.
void leave_order_check(Communicator const& communicator) noexcept;

/// The destructor's part after an error: tells the others and waits for nobody.
void give_up_order_check(Communicator const& communicator) noexcept;

} // namespace trainstone::Impl
