#pragma once

// Small agreements between ranks on host values: the loss, a norm, a flag, a hash. Run by the same schedules and the
// same executor as the training's collectives, counted apart (Purpose::control). The second half is for reports and
// set-up outside the training step: it uses MPI's own collectives and is not counted.

#include "comm/execution/communicator.hpp"
#include "comm/schedule/element.hpp"
#include "core/views.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace trainstone {

class ExecutionQueue;

/// Every rank's values become the reduction over ranks, in the same bits on all. Complete on return.
/// A double sum of few values is added in an order that depends on the number of ranks.
/// \param[in] queue  what is in flight there goes on meanwhile; null: nothing does
void control_all_reduce(ExecutionSpace const& exec, Communicator& communicator, Operation operation,
                        std::span<double> values, ExecutionQueue* queue = nullptr);
void control_all_reduce(ExecutionSpace const& exec, Communicator& communicator, Operation operation,
                        std::span<std::int64_t> values);

/// One value: returns the reduction over ranks.
double control_all_reduce(ExecutionSpace const& exec, Communicator& communicator, Operation operation, double value);
std::int64_t control_all_reduce(ExecutionSpace const& exec, Communicator& communicator, Operation operation,
                                std::int64_t value);

// --- reports and set-up only: MPI's own collectives, uncounted -------------------------------------------

/// A barrier: returns on no rank before all ranks have called it.
void barrier(Communicator const& communicator);

/// Every rank's text, by rank.
std::vector<std::string> all_gather_texts(Communicator const& communicator, std::string const& text);

/// Brings texts of any length to the first rank, rank by rank and piece by piece. A rank holds one piece of its own
/// text, and the first rank holds one piece of another text. Collective. All ranks come to the end, also if `next` or
/// `take` throws. Then the error is thrown again on the rank that had it.
/// \param[in] next  the calling rank's next piece; an empty one ends its text
/// \param[in] take  called on the first rank alone
void stream_to_first(Communicator& communicator, std::function<std::string()> const& next,
                     std::function<void(std::string const& piece)> const& take);

/// Runs `work` on every rank; if it throws an Error on any of them, every rank throws a CollectiveError with the text
/// of the first one. For set-up, where a file may be missing on one node only: no rank is left waiting.
void collectively(Communicator const& communicator, std::function<void()> const& work);

namespace Impl {
void all_gather_bytes(Communicator const& communicator, std::span<std::byte const> mine, std::span<std::byte> all);
}

/// Every rank's value, by rank.
template <class T>
std::vector<T> all_gather_values(Communicator const& communicator, T const& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(communicator.size()));
  Impl::all_gather_bytes(communicator, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

} // namespace trainstone
