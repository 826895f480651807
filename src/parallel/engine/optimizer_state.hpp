#pragma once

// What the optimizer keeps of this rank's shares: moments, a master copy of the parameters, an fp32 copy of gradients.
// Owns it, wherever the plan says that it lies, and the chunks by which it is moved. Promises: it allocates, moves,
// reads and writes exactly what the plan says; what is computed has the same bits wherever the state lies. Does not
// compute and does not know what the vectors mean.

#include "comm/execution/buffers.hpp"
#include "core/file_queue.hpp"
#include "core/memory.hpp"
#include "core/stored.hpp"
#include "parallel/engine/parameter_shares.hpp"
#include "parallel/plan/offload_plan.hpp"

#include <array>
#include <functional>
#include <optional>
#include <vector>

namespace trainstone {

class OptimizerState {
public:
  /// \param[in] gradients  what summed gradients are stored in
  /// Vectors become zero. Plan and layout must outlive the object.
  OptimizerState(ExecutionSpace const& exec, MemoryLedger& ledger, OffloadPlan const& plan, StateLayout const& layout,
                 Storage gradients);
  OptimizerState(OptimizerState const&) = delete;
  OptimizerState& operator=(OptimizerState const&) = delete;

  /// What an update works on: elements of this rank's shares, which lie side by side in every vector.
  struct Chunk {
    std::vector<StateChunk> parts;      ///< one behind the other; one, if state is moved
    std::vector<Vector<float>> vectors; ///< in the order of optimizer_vectors()
    StoredVector gradient;
    Vector<float> gradient_copy; ///< room for it; empty if the plan has none
    StoredVector parameters;
  };
  /// This rank's shares: gradients with the kernels, parameters wherever they lie.
  struct Shares {
    std::function<StoredVector(Index group)> gradients;
    ParameterShares* parameters;
  };
  /// Hands the chunks of groups [first, last] to `work`, in order: all that work is enqueued on the instance given
  /// there reads and writes. What is not moved goes in as few chunks as there are runs of shares side by side. What is
  /// elsewhere is brought before and taken back afterwards, while other chunks are in work. Returns before the last
  /// chunks are back: finish() waits.
  void update(Index first, Index last, Shares const& shares, std::function<void(Chunk const&)> const& work);

  /// Hands a part of a vector of a group's share to `look`, in pieces, in order: chunks_of(plan, range). Waits.
  void read(Index vector, Index group, Range range,
            std::function<void(Range const& piece, Vector<float> const& values)> const& look) const;
  /// The same of a whole share, all of whose values `fill` sets.
  void write(Index vector, Index group,
             std::function<void(Range const& piece, Vector<float> const& values)> const& fill);
  /// All values of a vector become 0.
  void clear(Index vector);
  /// Waits for what is on its way.
  void finish() const;

  /// This rank's share in a vector that lies in the memory of kernels. \throws Error if it lies elsewhere
  Vector<float> share(Index vector, Index group) const;

  /// What updates have moved so far, and how long they have waited for the file. An update of all groups ends by
  /// reading the first chunk for the next one: that counts, and not that the first update has to do it itself.
  StateMoves const& moved() const { return m_moved; }
  double waited_seconds() const { return m_waited; }
  /// How long it was read and written, also for others than updates.
  FileSeconds file_seconds() const { return m_queue ? m_queue->seconds() : FileSeconds(); }
  /// What accesses the file. Null: there is none.
  ScratchFile const* file() const { return m_file ? &*m_file : nullptr; }

private:
  /// Memory of what of a chunk is on its way to or from files.
  struct Slot {
    std::span<std::byte> vectors, parameters;
    FileQueue::Ticket ready = 0;            ///< when the vectors are there
    FileQueue::Ticket parameters_ready = 0; ///< when the parameters are there, or else their memory is free
  };

  bool in_file() const { return m_file.has_value(); }
  Index size_of(Index group) const { return m_layout->share(group).size(); }
  std::uint64_t place(Index vector, Index group, Index begin) const {
    return file_place(*m_plan, *m_layout, group, vector, begin);
  }
  /// A chunk's parameters, in memory for them.
  std::span<std::byte> parameter_request(std::span<std::byte> memory, StateChunk const& chunk) const;
  /// All vectors of a chunk.
  std::span<std::byte> request(Slot const& slot, StateChunk const& chunk) const;
  void allocate(MemoryLedger& ledger);
  void bring(Slot& slot, StateChunk const& chunk, bool is_counted);
  void bring_parameters(Slot& slot, StateChunk const& chunk, ParameterShares& parameters);
  StoredVector parameters_in(Slot& slot, StateChunk const& chunk, Shares const& shares);
  StoredVector bring_here(StoredVector const& from, std::span<std::byte> memory);
  Chunk chunk_in(Slot& slot, StateChunk const& chunk, Shares const& shares);
  void update_in_place(std::vector<StateChunk> const& chunks, Shares const& shares,
                       std::function<void(Chunk const&)> const& work);
  void take_back(Slot& slot, StateChunk const& chunk, Chunk const& worked, Shares const& shares);
  void wait(FileQueue::Ticket ticket) const;
  Vector<float> resident(Index vector, Index group, Range const& range) const;

  ExecutionSpace m_exec;
  OffloadPlan const* m_plan;
  StateLayout const* m_layout;
  Storage m_gradients;
  Allocation m_memory;                  ///< of vectors with the kernels
  PinnedMemory m_host;                  ///< of vectors on the host
  PinnedMemory m_moving;                ///< of chunks
  std::vector<Vector<float>> m_vectors; ///< of all shares; none in a file
  Vector<float> m_gradient_copy;
  std::array<Slot, chunks_in_memory> m_slots;
  std::span<std::byte> m_moved_gradient, m_moved_copy, m_moved_parameters; ///< of the chunk in work
  bool m_is_ahead = false;                                                 ///< the first chunk of all was asked for
  mutable FileQueue::Ticket m_last = 0;
  StateMoves m_moved;
  mutable double m_waited = 0;
  std::optional<ScratchFile> m_file;
  mutable std::optional<FileQueue> m_queue; ///< ends before what it uses
};

} // namespace trainstone
