#include "comm/execution/part_proof.hpp"

#include "comm/execution/control.hpp"
#include "comm/execution/message_proof.hpp"
#include "comm/execution/shared_segment.hpp"

namespace trainstone::Impl {

namespace {

Index wrong_in_segment(Communicator const& communicator, ExecutionSpace const& exec, Index elements) {
  std::vector<Rank> const& neighbours = communicator.topology().neighbours(communicator.rank());
  std::uint64_t const block = memory_footprint(static_cast<std::uint64_t>(elements) * sizeof(std::uint32_t));
  MemoryLedger ledger; // the run has not allocated yet
  SharedSegment const segment(communicator, ledger, MemoryCategory::buffers, "prove_neighbour_memory",
                              neighbours.size() * block);
  ProofLayout const layout = ProofLayout::in_one(elements);
  auto const place = [&](std::size_t owner, std::size_t other) {
    auto* const first = reinterpret_cast<std::uint32_t*>(segment.part(owner) + other * block);
    return ProofEnd{layout, Vector<std::uint32_t>(first, static_cast<std::size_t>(elements))};
  };
  std::size_t const me = segment.me();
  Index wrong = 0;
  constexpr int in_writers = 1, in_readers = 2; // part; of turn 0 an element is 0, as memory is that nobody has written
  for (int const turn : {in_writers, in_readers}) {
    for (std::size_t n = 0; n < neighbours.size(); ++n)
      write_proof(exec, turn == in_writers ? place(me, n) : place(n, me), communicator.rank(), turn);
    exec.fence("trainstone::comm::prove_neighbour_memory: neighbours read it");
    barrier(communicator);
    for (std::size_t n = 0; n < neighbours.size(); ++n)
      wrong +=
          count_wrong(exec, turn == in_writers ? place(n, me) : place(me, n), neighbours[n], communicator.rank(), turn);
    barrier(communicator); // nobody writes the next turn's before
  }
  return wrong;
}

} // namespace

Index wrong_in_parts(Communicator const& communicator, ExecutionSpace const& exec, Index elements) {
  Index const wrong = wrong_in_segment(communicator, exec, elements);
  barrier(communicator); // the segment has ended on all ranks
  SharedSegment::free_what_all_left();
  return wrong;
}

} // namespace trainstone::Impl
