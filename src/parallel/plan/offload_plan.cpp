#include "parallel/plan/offload_plan.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

std::uint64_t bytes_of(Index elements, std::size_t each) { return static_cast<std::uint64_t>(elements) * each; }

Index in_units(Index elements) { return (elements + chunk_unit - 1) / chunk_unit * chunk_unit; }

Index largest_share(StateLayout const& layout) {
  Index most = 0;
  for (Index group = 0; group < std::ssize(layout.groups); ++group) most = std::max(most, layout.share(group).size());
  return most;
}

/// What a vector of a share takes in the file.
std::uint64_t vector_bytes(StateLayout const& layout, Index group) {
  return file_footprint(bytes_of(layout.share(group).size(), sizeof(float)));
}

} // namespace

StateMoves operator-(StateMoves const& later, StateMoves const& earlier) {
  return {later.to_host - earlier.to_host, later.to_kernels - earlier.to_kernels, later.read - earlier.read,
          later.written - earlier.written, later.requests - earlier.requests};
}

StateMoves operator*(std::uint64_t times, StateMoves const& moves) {
  return {times * moves.to_host, times * moves.to_kernels, times * moves.read, times * moves.written,
          times * moves.requests};
}

StateMoves operator/(StateMoves const& moves, std::uint64_t parts) {
  return {moves.to_host / parts, moves.to_kernels / parts, moves.read / parts, moves.written / parts,
          moves.requests / parts};
}

OffloadPlan make_offload_plan(Residence optimizer, double chunk_bytes, std::string const& folder, DirectIo direct_io,
                              StateLayout const& layout) {
  OffloadPlan plan{.optimizer = optimizer, .folder = folder, .direct_io = direct_io};
  Index const most = std::max(chunk_unit, in_units(largest_share(layout))); // a rank may own nothing
  auto const vectors = static_cast<double>(std::max<Index>(1, optimizer_vectors(layout)));
  double const wanted =
      std::ceil(chunk_bytes / vectors / static_cast<double>(file_alignment)) * static_cast<double>(chunk_unit);
  plan.chunk = wanted < static_cast<double>(most) ? static_cast<Index>(wanted) : most;
  return plan;
}

std::vector<Range> chunks_of(OffloadPlan const& plan, Range range) {
  std::vector<Range> parts;
  if (range.empty()) return parts;
  if (!plan.moves_optimizer()) return {range};
  for (Index begin = range.begin; begin < range.end;) {
    Index const end = std::min(range.end, (begin / plan.chunk + 1) * plan.chunk);
    parts.push_back({begin, end});
    begin = end;
  }
  return parts;
}

std::vector<StateChunk> update_chunks(OffloadPlan const& plan, StateLayout const& layout, Index first, Index last) {
  std::vector<StateChunk> chunks;
  for (Index group = first; group <= last; ++group)
    for (Range const& part : chunks_of(plan, {0, layout.share(group).size()})) chunks.push_back({group, part});
  return chunks;
}

Index optimizer_vectors(StateLayout const& layout) { return Index{layout.types.master} + layout.moments; }

std::uint64_t file_place(OffloadPlan const& plan, StateLayout const& layout, Index group, Index vector, Index begin) {
  auto const vectors = static_cast<std::uint64_t>(optimizer_vectors(layout));
  std::uint64_t place = 0;
  for (Index before = 0; before < group; ++before) place += vectors * vector_bytes(layout, before);
  Index const chunk = begin / plan.chunk * plan.chunk, size = std::min(plan.chunk, layout.share(group).size() - chunk);
  place += vectors * bytes_of(chunk, sizeof(float));
  place += static_cast<std::uint64_t>(vector) * file_footprint(bytes_of(size, sizeof(float)));
  return place + bytes_of(begin - chunk, sizeof(float));
}

std::uint64_t file_bytes(StateLayout const& layout) {
  std::uint64_t bytes = 0;
  for (Index group = 0; group < std::ssize(layout.groups); ++group) bytes += vector_bytes(layout, group);
  return static_cast<std::uint64_t>(optimizer_vectors(layout)) * bytes;
}

ChunkMemory chunk_memory(OffloadPlan const& plan, StateLayout const& layout, Storage gradients) {
  auto const vector = file_footprint(bytes_of(plan.chunk, sizeof(float)));
  bool const in_file = plan.optimizer == Residence::file;
  return {.vectors = in_file ? static_cast<std::uint64_t>(optimizer_vectors(layout)) * vector : 0,
          .gradient = file_footprint(bytes_of(plan.chunk, bytes_per_value(gradients))),
          .gradient_copy = layout.types.gradient_copy ? vector : 0,
          .parameters = file_footprint(bytes_of(plan.chunk, bytes_per_value(layout.types.parameters)))};
}

StateMoves update_moves(OffloadPlan const& plan, StateLayout const& layout, Storage gradients) {
  StateMoves moves;
  if (!plan.moves_optimizer()) return moves;
  auto const elements = static_cast<std::uint64_t>(layout.share_elements());
  std::uint64_t const parameters = elements * bytes_per_value(layout.types.parameters);
  moves.to_host = elements * bytes_per_value(gradients) + (layout.types.master ? 0 : parameters);
  moves.to_kernels = parameters;
  if (plan.optimizer != Residence::file) return moves;
  moves.read = moves.written = file_bytes(layout);
  if (optimizer_vectors(layout) == 0) return moves; // of an optimizer that keeps nothing
  for (Index group = 0; group < std::ssize(layout.groups); ++group)
    moves.requests += 2 * static_cast<std::uint64_t>((layout.share(group).size() + plan.chunk - 1) / plan.chunk);
  return moves;
}

} // namespace trainstone
