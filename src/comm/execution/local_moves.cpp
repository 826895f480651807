#include "comm/execution/local_moves.hpp"

namespace trainstone {

Index elements_of_kernel(Move const& move, Pieces const& pieces, Index from) {
  Index length = move.size() - from;
  auto const limit = [&](Slice const& slice, Index first) {
    if (slice.buffer == BufferId::data) length = pieces.contiguous(slice.range.begin + first + from, length);
  };
  limit(move.to, 0);
  Index const parts = move.from.owner == every_neighbour ? 1 : move.from.range.size() / move.size();
  for (Index part = 0; part < parts; ++part) limit(move.from, part * move.size());
  return length;
}

std::uint64_t kernels_of(Schedule const& schedule, Pieces const& pieces) {
  std::uint64_t kernels = 0;
  for (Round const& round : schedule.rounds) {
    for (Move const& move : round) {
      if (!move.is_local()) continue;
      for (Index done = 0; done < move.size(); done += elements_of_kernel(move, pieces, done)) ++kernels;
    }
  }
  return kernels;
}

} // namespace trainstone
