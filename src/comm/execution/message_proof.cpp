#include "comm/execution/message_proof.hpp"

#include "comm/execution/mpi.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/memory.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace trainstone::Impl {

namespace {

constexpr Index gap = 5;         // no multiple of what libraries copy at a time
constexpr Index no_element = -1; // of places in gaps

KOKKOS_INLINE_FUNCTION std::uint32_t pattern(Rank rank, int turn, Index i) {
  return static_cast<std::uint32_t>(i) * 2654435761u ^ static_cast<std::uint32_t>(rank) * 0x9e3779b9u ^
         static_cast<std::uint32_t>(turn) * 0x85ebca6bu;
}

/// Which element lies at a place: plain arrays, which kernels can take with them.
struct Places {
  Index begin[ProofLayout::most_pieces], end[ProofLayout::most_pieces];

  explicit Places(ProofLayout const& layout) {
    for (std::size_t k = 0; k < layout.pieces().size(); ++k) {
      begin[k] = layout.pieces()[k].begin;
      end[k] = layout.pieces()[k].end;
    }
  }
  KOKKOS_FUNCTION Index element(Index place) const {
    Index first = 0;
    for (int k = 0; k < ProofLayout::most_pieces; ++k) {
      if (place >= begin[k] && place < end[k]) return first + place - begin[k];
      first += end[k] - begin[k];
    }
    return no_element;
  }
};

/// What lies at a place: gaps have other values than elements, for no element is so far on.
KOKKOS_INLINE_FUNCTION std::uint32_t value_at(Places const& places, Rank rank, Rank own, int turn, Index place) {
  Index const element = places.element(place);
  return element == no_element ? ~pattern(own, turn, place) : pattern(rank, turn, element);
}

struct WriteProof {
  Vector<std::uint32_t> to;
  Places places;
  Rank rank;
  int turn;
  KOKKOS_FUNCTION void operator()(Index place) const { to(place) = value_at(places, rank, rank, turn, place); }
};

struct CountWrong {
  Vector<std::uint32_t> from;
  Places places;
  Rank rank, own;
  int turn;
  KOKKOS_FUNCTION void operator()(Index place, Index& wrong) const {
    wrong += from(place) == value_at(places, rank, own, turn, place) ? 0 : 1;
  }
};

auto range(ExecutionSpace const& exec, Index places) {
  return Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>(exec, 0, places);
}

int checked_int(Index value) {
  TRAINSTONE_REQUIRE(value >= 0 && value <= std::numeric_limits<int>::max(), "{} elements are no MPI message", value);
  return static_cast<int>(value);
}

/// What MPI calls a message's elements. One piece is so many numbers, as training sends it.
struct Elements {
  int count = 0;
  MPI_Datatype datatype = MPI_UINT32_T;
  bool is_own = false;

  explicit Elements(ProofLayout const& layout) {
    std::vector<int> lengths;
    std::vector<MPI_Aint> places; // relative to the begin of the memory
    for (Range const& piece : layout.pieces()) {
      if (piece.empty()) continue;
      lengths.push_back(checked_int(piece.size()));
      places.push_back(static_cast<MPI_Aint>(piece.begin) * static_cast<MPI_Aint>(sizeof(std::uint32_t)));
    }
    if (lengths.empty()) return;
    is_own = lengths.size() > 1 || places[0] != 0;
    count = is_own ? 1 : lengths[0];
    if (!is_own) return;
    TRAINSTONE_MPI_CHECK(MPI_Type_create_hindexed(checked_int(std::ssize(lengths)), lengths.data(), places.data(),
                                                  MPI_UINT32_T, &datatype));
    TRAINSTONE_MPI_CHECK(MPI_Type_commit(&datatype));
  }
  Elements(Elements const&) = delete;
  Elements& operator=(Elements const&) = delete;
  ~Elements() {
    if (is_own) MPI_Type_free(&datatype);
  }
};

} // namespace

ProofLayout ProofLayout::in_one(Index elements) {
  ProofLayout layout;
  layout.m_pieces = {Range{0, elements}};
  return layout;
}

ProofLayout ProofLayout::in_pieces(Index elements) {
  Index const first = elements / 2, second = elements / 3, third = elements - first - second;
  Index const begin_of_second = third + gap, begin_of_first = begin_of_second + second + gap;
  ProofLayout layout;
  layout.m_pieces = {Range{begin_of_first, begin_of_first + first}, Range{begin_of_second, begin_of_second + second},
                     Range{0, third}};
  return layout;
}

Index ProofLayout::extent() const { return std::ranges::max_element(m_pieces, {}, &Range::end)->end; }

void write_proof(ExecutionSpace const& exec, ProofEnd const& end, Rank rank, int turn) {
  launch_for({"trainstone::comm::write_proof"}, range(exec, end.layout.extent()),
             WriteProof{end.memory, Places(end.layout), rank, turn});
}

Index count_wrong(ExecutionSpace const& exec, ProofEnd const& end, Rank rank, Rank own, int turn) {
  Index wrong = 0;
  launch_reduce({"trainstone::comm::check_proof"}, range(exec, end.layout.extent()),
                CountWrong{end.memory, Places(end.layout), rank, own, turn}, wrong);
  return wrong;
}

struct ProofExchange::State {
  Elements received, sent;
  std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  ~State() {
    for (MPI_Request& request : requests)
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
};

ProofExchange::ProofExchange(Communicator const& communicator, ProofEnd const& sent, ProofEnd const& received)
    : m_state(new State{Elements(received.layout), Elements(sent.layout)}) {
  Rank const rank = communicator.rank(), ranks = communicator.size();
  Rank const next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  MPI_Comm const comm = communicator.handle().comm;
  Elements const &in = m_state->received, &out = m_state->sent;
  TRAINSTONE_MPI_CHECK(
      MPI_Recv_init(received.memory.data(), in.count, in.datatype, previous, 0, comm, &m_state->requests[0]));
  TRAINSTONE_MPI_CHECK(
      MPI_Send_init(sent.memory.data(), out.count, out.datatype, next, 0, comm, &m_state->requests[1]));
}

ProofExchange::~ProofExchange() = default;

void ProofExchange::run() {
  auto& requests = m_state->requests;
  TRAINSTONE_MPI_CHECK(MPI_Startall(static_cast<int>(requests.size()), requests.data()));
  TRAINSTONE_MPI_CHECK(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
}

Index wrong_elements(Communicator const& communicator, ExecutionSpace const& exec, Index elements) {
  Rank const rank = communicator.rank(), previous = (rank + communicator.size() - 1) % communicator.size();
  Index wrong = 0;
  for (ProofLayout const& out : {ProofLayout::in_one(elements), ProofLayout::in_pieces(elements)}) {
    for (ProofLayout const& in : {ProofLayout::in_one(elements), ProofLayout::in_pieces(elements)}) {
      MemoryLedger ledger; // the run has not allocated yet
      auto const footprint = [](ProofLayout const& layout) {
        return memory_footprint(static_cast<std::uint64_t>(layout.extent()) * sizeof(std::uint32_t));
      };
      Allocation const memory(ledger, MemoryCategory::buffers, "prove_device_messages", footprint(out) + footprint(in));
      Arena arena(memory.bytes());
      ProofEnd const sent{out, arena.vector<std::uint32_t>("sent", out.extent())};
      ProofEnd const received{in, arena.vector<std::uint32_t>("received", in.extent())};
      ProofExchange exchange(communicator, sent, received);
      for (int const turn : {0, 1}) {
        write_proof(exec, sent, rank, turn);
        write_proof(exec, received, rank, turn);
        exec.fence("trainstone::comm::prove_device_messages: MPI touches the memory");
        exchange.run();
        wrong += count_wrong(exec, received, previous, rank, turn);
      }
    }
  }
  return wrong;
}

} // namespace trainstone::Impl
