#pragma once

// The optimizer's state outside of the memory that kernels work on: where it lies, in which chunks an update goes over
// it, and what an update moves. A plain value and pure functions of it. Moves nothing.
// Sources: ZeRO-Offload: Democratizing Billion-Scale Model Training, arXiv:2101.06840; ZeRO-Infinity, arXiv:2104.07857.

#include "core/residence.hpp"
#include "core/storage.hpp"
#include "parallel/plan/state_layout.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// What an update moves, on one rank.
struct StateMoves {
  std::uint64_t to_host = 0;    ///< bytes: gradients, and parameters without a master copy
  std::uint64_t to_kernels = 0; ///< bytes: parameters
  std::uint64_t read = 0;       ///< bytes of the file
  std::uint64_t written = 0;
  std::uint64_t requests = 0; ///< reads and writes of the file
  bool operator==(StateMoves const&) const = default;
};

StateMoves operator-(StateMoves const& later, StateMoves const& earlier);
StateMoves operator*(std::uint64_t times, StateMoves const& moves);
StateMoves operator/(StateMoves const& moves, std::uint64_t parts);

struct OffloadPlan {
  Residence optimizer = Residence::kernels;
  Index chunk = 0;         ///< elements that an update moves at a time, at most; a multiple of chunk_unit
  std::string folder = {}; ///< of the file; empty: the system's for such files
  DirectIo direct_io = DirectIo::automatic;

  bool moves_optimizer() const { return optimizer != Residence::kernels; }
};

/// Elements, in fp32, of which a chunk has a multiple.
inline constexpr Index chunk_unit = static_cast<Index>(file_alignment / sizeof(float));
/// Chunks that have memory at a time: one is read ahead, one is in work, one is written behind.
inline constexpr Index chunks_in_memory = 3;

/// \param[in] chunk_bytes  of all vectors that move; rounded up to chunk_unit elements of each
OffloadPlan make_offload_plan(Residence optimizer, double chunk_bytes, std::string const& folder, DirectIo direct_io,
                              StateLayout const& layout);

/// A part of this rank's share of a group.
struct StateChunk {
  Index group;
  Range range; ///< counted from the share's begin
  bool operator==(StateChunk const&) const = default;
};

/// In which an update goes over the shares of groups [first, last]: one each, if the state lies with the kernels.
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

/// Bytes of host memory for chunks, each a multiple of file_alignment: the vectors of a chunk in a file, of which
/// chunks_in_memory have some; and of the chunk in work its gradient, the fp32 copy of it, and its parameters.
struct ChunkMemory {
  std::uint64_t vectors, gradient, gradient_copy, parameters;
  /// With room to align the first byte.
  std::uint64_t total() const {
    return chunks_in_memory * vectors + gradient + gradient_copy + parameters + file_alignment;
  }
};
ChunkMemory chunk_memory(OffloadPlan const& plan, StateLayout const& layout, Storage gradients);

/// Of one update of all groups. \param[in] gradients  what summed gradients are stored in
StateMoves update_moves(OffloadPlan const& plan, StateLayout const& layout, Storage gradients);

} // namespace trainstone
