#pragma once

// Training state outside of the memory that kernels work on: the optimizer's, and shares of parameters. Owns where it
// lies, in which chunks an update goes over it, and what updates and gathers move. A plain value and pure functions of
// it. Moves nothing.
// Sources: ZeRO-Offload: Democratizing Billion-Scale Model Training, arXiv:2101.06840; ZeRO-Infinity, arXiv:2104.07857.

#include "core/residence.hpp"
#include "core/storage.hpp"
#include "parallel/plan/state_layout.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// What an update or a gather moves, on one rank.
struct StateMoves {
  std::uint64_t to_host = 0;    ///< bytes of gradients and parameters
  std::uint64_t to_kernels = 0; ///< bytes of parameters
  std::uint64_t read = 0;       ///< bytes of files
  std::uint64_t written = 0;
  std::uint64_t requests = 0; ///< reads and writes of files
  bool operator==(StateMoves const&) const = default;
};

StateMoves operator+(StateMoves const& moves, StateMoves const& more);
StateMoves operator-(StateMoves const& later, StateMoves const& earlier);
StateMoves operator*(std::uint64_t times, StateMoves const& moves);
StateMoves operator/(StateMoves const& moves, std::uint64_t parts);

struct OffloadPlan {
  Residence optimizer = Residence::kernels;
  Residence parameters = Residence::kernels; ///< a rank's shares of sharded parameters
  Index chunk = 0; ///< elements that an update moves at a time, at most; a multiple of chunk_unit
  FileSettings files = {};

  bool moves_optimizer() const { return optimizer != Residence::kernels; }
  bool moves_parameters() const { return parameters != Residence::kernels; }
  bool moves() const { return moves_optimizer() || moves_parameters(); }
  bool has_file() const { return optimizer == Residence::file || parameters == Residence::file; }
  /// Whether an update goes over shares in chunks, and not in one piece.
  bool has_chunks() const { return moves_optimizer() || parameters == Residence::file; }
};

/// Elements, in fp32, of which a chunk has a multiple. With 16-bit parameters in a file it has one of twice as many.
inline constexpr Index chunk_unit = static_cast<Index>(file_alignment / sizeof(float));
/// Chunks that have memory at a time: one is read ahead, one is in work, one is written behind.
inline constexpr Index chunks_in_memory = 3;

/// Places of shares that gathers take from a file: one is read ahead while another one is copied from.
inline constexpr Index fetch_slots = 2;

/// \param[in] chunk_bytes  of all vectors that move, as if in fp32; rounded up to whole units of each
OffloadPlan make_offload_plan(Residence optimizer, Residence parameters, double chunk_bytes, FileSettings const& files,
                              StateLayout const& layout);

/// A part of this rank's share of a group.
struct StateChunk {
  Index group;
  Range range; ///< counted from the share's begin
  bool operator==(StateChunk const&) const = default;
};

/// In which an update goes over the shares of groups [first, last]: one each, without has_chunks().
std::vector<StateChunk> update_chunks(OffloadPlan const& plan, StateLayout const& layout, Index first, Index last);
/// The parts of a range of a group's share in which the state is looked at, in order: those of chunks.
std::vector<Range> chunks_of(OffloadPlan const& plan, Range range);

/// fp32 vectors that the optimizer keeps, and that lie elsewhere if the plan says so: master copy, moments.
Index optimizer_vectors(StateLayout const& layout);
/// Where elements of this rank's share of a group begin in the file, in bytes. Groups follow each other, in each its
/// chunks, and in each chunk its vectors, so that a request has all of a chunk.
/// \param[in] vector  of optimizer_vectors()   \param[in] begin  counted from the share's begin
std::uint64_t file_place(OffloadPlan const& plan, StateLayout const& layout, Index group, Index vector, Index begin);
std::uint64_t file_bytes(StateLayout const& layout);

/// The same of parameters in a file of their own, where a share follows the one before: those of a unit are one piece.
std::uint64_t parameter_place(StateLayout const& layout, Index group, Index begin);
std::uint64_t parameter_file_bytes(StateLayout const& layout);
/// What a fetch reads of this rank's shares of a unit, and the most of all units.
std::uint64_t fetched_bytes(StateLayout const& layout, Index unit);
std::uint64_t largest_fetch(StateLayout const& layout);

/// Bytes of host memory for chunks, each a multiple of file_alignment. Of chunks_in_memory chunks: the vectors that lie
/// in a file, and the parameters that do. Of the chunk in work: its gradient, the fp32 copy of it, and its parameters,
/// if they come from the kernels.
struct ChunkMemory {
  std::uint64_t vectors, filed_parameters, gradient, gradient_copy, parameters;
  /// With room to align the first byte.
  std::uint64_t total() const {
    return chunks_in_memory * (vectors + filed_parameters) + gradient + gradient_copy + parameters + file_alignment;
  }
};
ChunkMemory chunk_memory(OffloadPlan const& plan, StateLayout const& layout, Storage gradients);

/// Of one update of all groups. \param[in] gradients  what summed gradients are stored in
StateMoves update_moves(OffloadPlan const& plan, StateLayout const& layout, Storage gradients);
/// Of one gather of a unit, with its fetch.
StateMoves gather_moves(OffloadPlan const& plan, StateLayout const& layout, Index unit);

} // namespace trainstone
