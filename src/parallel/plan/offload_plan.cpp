#include "parallel/plan/offload_plan.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

std::uint64_t bytes_of(Index elements, std::size_t each) { return static_cast<std::uint64_t>(elements) * each; }

Index round_up(Index elements, Index unit) { return (elements + unit - 1) / unit * unit; }

/// Elements of which a chunk has a multiple: whole blocks of a file, of all vectors that lie in one.
Index unit_of_chunks(Residence parameters, StateLayout const& layout) {
  if (parameters != Residence::file) return chunk_unit;
  return static_cast<Index>(file_alignment / bytes_per_value(layout.types.parameters));
}

Index largest_share(StateLayout const& layout) {
  Index most = 0;
  for (Index group = 0; group < std::ssize(layout.groups); ++group) most = std::max(most, layout.share(group).size());
  return most;
}

/// What a vector of a share takes in the file.
std::uint64_t vector_bytes(StateLayout const& layout, Index group) {
  return file_footprint(bytes_of(layout.share(group).size(), sizeof(float)));
}

/// What the parameters of a share take in theirs.
std::uint64_t parameter_bytes(StateLayout const& layout, Index group) {
  return file_footprint(bytes_of(layout.share(group).size(), bytes_per_value(layout.types.parameters)));
}

std::uint64_t chunks_of_groups(OffloadPlan const& plan, StateLayout const& layout) {
  std::uint64_t chunks = 0;
  for (Index group = 0; group < std::ssize(layout.groups); ++group)
    chunks += static_cast<std::uint64_t>((layout.share(group).size() + plan.chunk - 1) / plan.chunk);
  return chunks;
}

} // namespace

StateMoves operator+(StateMoves const& moves, StateMoves const& more) {
  return {moves.to_host + more.to_host, moves.to_kernels + more.to_kernels, moves.read + more.read,
          moves.written + more.written, moves.requests + more.requests};
}

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

OffloadPlan make_offload_plan(Residence optimizer, Residence parameters, double chunk_bytes, FileSettings const& files,
                              StateLayout const& layout) {
  OffloadPlan plan{.optimizer = optimizer, .parameters = parameters, .files = files};
  Index const unit = unit_of_chunks(parameters, layout);
  Index const most = std::max(unit, round_up(largest_share(layout), unit)); // a rank may own nothing
  Index const moved = (plan.moves_optimizer() ? optimizer_vectors(layout) : 0) + (plan.moves_parameters() ? 1 : 0);
  auto const vectors = static_cast<double>(std::max<Index>(1, moved));
  double const bytes_of_unit = static_cast<double>(unit) * sizeof(float);
  double const wanted = std::ceil(chunk_bytes / vectors / bytes_of_unit) * static_cast<double>(unit);
  plan.chunk = wanted < static_cast<double>(most) ? static_cast<Index>(wanted) : most;
  return plan;
}

std::vector<Range> chunks_of(OffloadPlan const& plan, Range range) {
  std::vector<Range> parts;
  if (range.empty()) return parts;
  if (!plan.has_chunks()) return {range};
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

std::uint64_t parameter_place(StateLayout const& layout, Index group, Index begin) {
  std::uint64_t place = 0;
  for (Index before = 0; before < group; ++before) place += parameter_bytes(layout, before);
  return place + bytes_of(begin, bytes_per_value(layout.types.parameters));
}

std::uint64_t parameter_file_bytes(StateLayout const& layout) {
  return parameter_place(layout, std::ssize(layout.groups), 0);
}

std::uint64_t fetched_bytes(StateLayout const& layout, Index unit) {
  auto const& [name, first, last, offset, padded] = layout.units[static_cast<std::size_t>(unit)];
  return parameter_place(layout, last + 1, 0) - parameter_place(layout, first, 0);
}

std::uint64_t largest_fetch(StateLayout const& layout) {
  std::uint64_t most = 0;
  for (Index unit = 0; unit < std::ssize(layout.units); ++unit) most = std::max(most, fetched_bytes(layout, unit));
  return most;
}

ChunkMemory chunk_memory(OffloadPlan const& plan, StateLayout const& layout, Storage gradients) {
  auto const vector = file_footprint(bytes_of(plan.chunk, sizeof(float)));
  auto const parameters = file_footprint(bytes_of(plan.chunk, bytes_per_value(layout.types.parameters)));
  bool const moves = plan.moves_optimizer();
  return {.vectors =
              plan.optimizer == Residence::file ? static_cast<std::uint64_t>(optimizer_vectors(layout)) * vector : 0,
          .filed_parameters = plan.parameters == Residence::file ? parameters : 0,
          .gradient = moves ? file_footprint(bytes_of(plan.chunk, bytes_per_value(gradients))) : 0,
          .gradient_copy = moves && layout.types.gradient_copy ? vector : 0,
          .parameters = moves && !plan.moves_parameters() ? parameters : 0};
}

StateMoves update_moves(OffloadPlan const& plan, StateLayout const& layout, Storage gradients) {
  StateMoves moves;
  if (!plan.moves()) return moves;
  auto const elements = static_cast<std::uint64_t>(layout.share_elements());
  std::uint64_t const parameters = elements * bytes_per_value(layout.types.parameters);
  std::uint64_t const old_parameters = layout.types.master ? 0 : parameters; // that an update reads
  if (plan.moves_optimizer()) moves.to_host += elements * bytes_per_value(gradients);
  if (plan.moves_optimizer() && !plan.moves_parameters()) {
    moves.to_host += old_parameters;
    moves.to_kernels += parameters;
  }
  if (plan.optimizer == Residence::file && optimizer_vectors(layout) > 0) {
    moves.read = moves.written = file_bytes(layout);
    moves.requests = 2 * chunks_of_groups(plan, layout);
  }
  if (plan.parameters == Residence::file) {
    moves.read += layout.types.master ? 0 : parameter_file_bytes(layout);
    moves.written += parameter_file_bytes(layout);
    moves.requests += (layout.types.master ? 1 : 2) * chunks_of_groups(plan, layout);
  }
  return moves;
}

StateMoves gather_moves(OffloadPlan const& plan, StateLayout const& layout, Index unit) {
  StateMoves moves;
  if (!plan.moves_parameters()) return moves;
  auto const& [name, first, last, offset, padded] = layout.units[static_cast<std::size_t>(unit)];
  for (Index group = first; group <= last; ++group)
    moves.to_kernels += bytes_of(layout.share(group).size(), bytes_per_value(layout.types.parameters));
  if (plan.parameters != Residence::file) return moves;
  moves.read = fetched_bytes(layout, unit);
  moves.requests = moves.read > 0 ? 1 : 0;
  return moves;
}

} // namespace trainstone
