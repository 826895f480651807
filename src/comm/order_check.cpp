#include "comm/order_check.hpp"

#include "comm/mpi.hpp"
#include "core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <map>
#include <utility>

namespace trainstone {

namespace {

/// A call as it travels: cut to a fixed length, so that one exchange compares whatever ranks call.
using Announcement = std::array<char, 120>;

constexpr char const* leaving = "the end of the communicator";

/// All ranks' calls, by rank.
std::vector<std::string> exchange(Impl::CommunicatorHandle const& handle, int ranks, std::string const& call) {
  Announcement mine{};
  std::copy_n(call.begin(), std::min(call.size(), mine.size() - 1), mine.begin());
  std::vector<Announcement> all(static_cast<std::size_t>(ranks));
  TRAINSTONE_MPI_CHECK(
      MPI_Allgather(mine.data(), mine.size(), MPI_CHAR, all.data(), mine.size(), MPI_CHAR, handle.order));
  std::vector<std::string> calls;
  for (Announcement const& announcement : all) calls.emplace_back(announcement.data());
  return calls;
}

/// "ranks 0, 2: all_reduce ...; rank 1: broadcast ..."; empty if all are equal
std::string difference(std::vector<std::string> const& calls) {
  std::map<std::string, std::vector<std::size_t>> callers;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) callers[calls[rank]].push_back(rank);
  if (callers.size() == 1) return "";
  std::string text;
  for (auto const& [call, ranks] : callers) {
    text += fmt::format("{}rank{} {}: {}", text.empty() ? "" : "; ", ranks.size() == 1 ? "" : "s",
                        fmt::join(ranks, ", "), call);
  }
  return text;
}

constexpr std::uint64_t fnv_prime = 0x100000001b3u; // FNV-1a

} // namespace

CollectiveCall::CollectiveCall(std::string text) : m_text(std::move(text)), m_hash(0xcbf29ce484222325u) {
  for (char const c : m_text) m_hash = (m_hash ^ static_cast<unsigned char>(c)) * fnv_prime;
}

void Communicator::check_order(OrderCheck check) {
  MPI_Comm& order = m_handle->order;
  if ((order != MPI_COMM_NULL) == (check == OrderCheck::yes)) return;
  if (check == OrderCheck::no) {
    TRAINSTONE_MPI_CHECK(MPI_Comm_free(&order));
    return;
  }
  TRAINSTONE_MPI_CHECK(MPI_Comm_dup(m_handle->comm, &order));
  TRAINSTONE_MPI_CHECK(MPI_Comm_set_errhandler(order, MPI_ERRORS_RETURN));
}

void Communicator::announce(CollectiveCall const& call) const {
  ++m_handle->calls;
  m_handle->order_hash = (m_handle->order_hash ^ call.hash()) * fnv_prime;
  if (m_handle->order == MPI_COMM_NULL) return;
  std::string const text = difference(exchange(*m_handle, m_size, call.text()));
  if (text.empty()) return;
  throw CollectiveError(
      fmt::format("ranks call different collectives (call {} of this communicator): {}", m_handle->calls, text));
}

std::uint64_t Communicator::order_hash() const { return m_handle->order_hash; }

void Impl::leave_order_check(Communicator const& communicator) noexcept {
  CommunicatorHandle handle = communicator.handle();
  try {
    // while an error unwinds, the others may never come
    std::string const text =
        std::uncaught_exceptions() > 0 ? "" : difference(exchange(handle, communicator.size(), leaving));
    if (!text.empty()) std::fprintf(stderr, "trainstone: ranks call different collectives: %s\n", text.c_str());
  } catch (std::exception const& error) {
    std::fprintf(stderr, "trainstone: %s\n", error.what());
  }
  MPI_Comm_free(&handle.order);
}

} // namespace trainstone
