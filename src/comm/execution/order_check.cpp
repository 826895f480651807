#include "comm/execution/order_check.hpp"

#include "comm/execution/ranks_by_text.hpp"
#include "comm/execution/shared_segment.hpp"
#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <utility>

namespace trainstone {

namespace {

/// A call as it travels: of a fixed length, so that one exchange compares whatever ranks call.
using Announcement = std::array<char, 256>;

/// A text that is too long ends in its hash, so that what distinguishes it is never cut off.
Announcement announcement_of(CollectiveCall const& call) {
  Announcement announcement{};
  std::string text = call.text();
  if (text.size() >= announcement.size()) {
    std::string const end = fmt::format("... #{:016x}", call.hash());
    text = text.substr(0, announcement.size() - 1 - end.size()) + end;
  }
  std::ranges::copy(text, announcement.begin());
  return announcement;
}

/// "ranks 0, 2: all_reduce ...; rank 1: broadcast ..."; empty if all are equal
std::string difference(std::vector<Announcement> const& calls) {
  std::vector<std::string> texts;
  for (Announcement const& call : calls) texts.emplace_back(call.data());
  return std::ranges::count(texts, texts.front()) == std::ssize(texts) ? "" : ranks_by_text(texts);
}

} // namespace

CollectiveCall::CollectiveCall(std::string text) : m_text(std::move(text)) {
  for (char const c : m_text) m_fingerprint.add(static_cast<unsigned char>(c));
}

void Communicator::check_order(OrderCheck check) {
  MPI_Comm& order = m_handle->order;
  if ((order != MPI_COMM_NULL) == (check == OrderCheck::yes)) return;
  if (check == OrderCheck::no) {
    TRAINSTONE_MPI_CHECK(MPI_Comm_free(&order));
    m_handle->open_comparisons.reset(); // those that are under way keep it
    return;
  }
  TRAINSTONE_MPI_CHECK(MPI_Comm_dup(m_handle->comm, &order));
  TRAINSTONE_MPI_CHECK(MPI_Comm_set_errhandler(order, MPI_ERRORS_RETURN));
  m_handle->open_comparisons = std::make_shared<Impl::OpenComparisons>();
}

std::unique_ptr<Impl::CallComparison> Communicator::announce(CollectiveCall const& call) const {
  ++m_handle->calls;
  m_handle->order_fingerprint.add(call.hash());
  if (m_handle->order == MPI_COMM_NULL) return nullptr;
  return std::make_unique<Impl::CallComparison>(*m_handle, m_size, call);
}

void Communicator::announce_and_compare(CollectiveCall const& call) const {
  if (auto const comparison = announce(call)) comparison->wait();
}

std::uint64_t Communicator::order_hash() const { return m_handle->order_fingerprint.value(); }

namespace Impl {

/// What MPI reads and writes until the exchange is over.
struct CallComparison::Exchanged {
  Announcement mine;
  std::vector<Announcement> all; ///< by rank
};

CallComparison::CallComparison(CommunicatorHandle& handle, Rank ranks, CollectiveCall const& call)
    : m_handle(&handle),
      m_open(handle.open_comparisons),
      m_number(handle.calls),
      m_exchanged(std::make_unique<Exchanged>(
          Exchanged{announcement_of(call), std::vector<Announcement>(static_cast<std::size_t>(ranks))})) {
  constexpr int length = std::tuple_size_v<Announcement>;
  TRAINSTONE_MPI_CHECK(MPI_Iallgather(m_exchanged->mine.data(), length, MPI_CHAR, m_exchanged->all.data(), length,
                                      MPI_CHAR, handle.order, &m_request));
  std::lock_guard const lock(m_open->mutex);
  m_open->in_order.push_back(this);
}

CallComparison::~CallComparison() {
  std::lock_guard const lock(m_open->mutex);
  std::erase(m_open->in_order, this);
  // MPI has no way to end a collective that other ranks may never join: what it writes to must stay.
  if (m_request != MPI_REQUEST_NULL) static_cast<void>(m_exchanged.release());
}

/// Whoever has called this has called all earlier ones, so that those come to an end, too.
bool CallComparison::test() {
  std::lock_guard const lock(m_open->mutex);
  std::deque<CallComparison*>& open = m_open->in_order;
  while (std::ranges::find(open, this) != open.end()) {
    if (!open.front()->is_exchanged()) return false;
    open.front()->require_equal();
    open.pop_front();
  }
  return true;
}

void CallComparison::wait() {
  Patience patience;
  while (!test()) patience.look_again();
}

bool CallComparison::is_exchanged() {
  int complete = 1;
  TRAINSTONE_MPI_CHECK(MPI_Test(&m_request, &complete, MPI_STATUS_IGNORE));
  return complete != 0;
}

void CallComparison::require_equal() const {
  std::string const text = difference(m_exchanged->all);
  if (text.empty()) return;
  m_handle->failed = true;
  std::string const message =
      fmt::format("ranks call different collectives (call {} of this communicator): {}", m_number, text);
  int world = 0;
  TRAINSTONE_MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &world));
  if (std::ssize(m_exchanged->all) < world) throw Error(message); // ranks outside of it do not know, and may wait
  throw CollectiveError(message);
}

void leave_order_check(Communicator const& communicator) noexcept {
  static CollectiveCall const leaving("the end of the communicator");
  try {
    communicator.announce_and_compare(leaving);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "trainstone: %s\n", error.what());
  }
  MPI_Comm order = communicator.handle().order;
  MPI_Comm_free(&order);
}

void give_up_order_check(Communicator const& communicator) noexcept {
  static CollectiveCall const giving_up("the end of the communicator after an error");
  try {
    communicator.announce(giving_up); // whether the others ever answer is left to them
  } catch (std::exception const& error) {
    std::fprintf(stderr, "trainstone: %s\n", error.what());
  }
}

} // namespace Impl

} // namespace trainstone
