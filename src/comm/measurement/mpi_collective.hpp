#pragma once

// The library's own collectives on the same problems: baseline of measurements and reference of tests. Owns the
// translation of a Problem into one call of MPI. Promises: the same meaning as problem.hpp says; of the calls that MPI
// has for it the plain one where all blocks are equal (what a user would write), the one with counts where they are
// not. Where the communicator's messages are staged, what a user would write, too: what the call reads is copied to
// pinned memory, and what it writes is copied back. Is not counted: it is not ours.

#include "comm/execution/communicator.hpp"
#include "comm/schedule/element.hpp"
#include "comm/schedule/problem.hpp"
#include "core/views.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone {

/// Whether the blocks of all ranks have the same size. Libraries have other calls where they have not, or none.
bool has_equal_blocks(Problem const& problem);

/// Why MPI has no collective for this ("MPI has no 16-bit floating-point type to add up"); empty if it has.
/// Sums of bf16 and fp16 are left out even where a library could do them: MPI has no standard type for them, and what
/// a library's own type is added up and rounded in is not defined. The reason is the same for all sizes that are too
/// large to be counted.
std::string mpi_refusal(Problem const& problem, ElementType type);

/// Whether MPI is given one buffer or two. A library may be faster with either: in place MPICH's all-to-all goes
/// through a temporary buffer, for example.
enum class MpiForm { in_place, two_buffers };

/// "in place", "two buffers".
std::string_view to_string(MpiForm form);

/// The forms that differ for this problem. A broadcast, a barrier and a reduce-scatter of unequal blocks have one form.
std::vector<MpiForm> mpi_forms(Problem const& problem);

/// Elements that a rank needs beside the data.
Index mpi_scratch_elements(Problem const& problem, Rank rank, MpiForm form);

/// Pinned memory for copies of data and scratch, where messages are staged; else 0.
std::uint64_t mpi_staging_bytes(MessageBuffers buffers, Problem const& problem, Rank rank, std::size_t element_bytes,
                                MpiForm form);

class MpiCollective {
public:
  /// \param[in]     exec    waited for before MPI touches the data    \param[in] communicator must outlive this
  /// \param[in,out] data    (problem.elements())    \param[out] scratch (at least mpi_scratch_elements())
  /// \param[out]    staging (at least mpi_staging_bytes())
  /// \param[in]     form    one of mpi_forms()
  /// \throws InputError if mpi_refusal() has a reason
  /// \throws Error if the extents differ, or MPI is given host memory and the data is a device's
  template <class T>
  MpiCollective(ExecutionSpace const& exec, Communicator const& communicator, Problem problem, Operation operation,
                Vector<T> data, Vector<T> scratch, std::span<std::byte> staging = {}, MpiForm form = MpiForm::in_place)
      : MpiCollective(exec, communicator, std::move(problem), operation, element_type_of<T>(), memory_of(data),
                      memory_of(scratch), staging, form) {}

  /// The call; on return the result lies in the data where problem.hpp has it.
  void run();
  /// The call as users time it: the result stays where MPI has put it, but for copies back from staging memory.
  void run_as_users_do();
  /// Where run_as_users_do() leaves the result of this rank (problem.hpp), or where a root has it from the start.
  std::span<std::byte const> users_result() const;

private:
  struct Memory {
    std::byte* data;
    Index elements;
  };
  template <class T>
  static Memory memory_of(Vector<T> vector) {
    return {reinterpret_cast<std::byte*>(vector.data()), static_cast<Index>(vector.extent(0))};
  }

  MpiCollective(ExecutionSpace const& exec, Communicator const& communicator, Problem problem, Operation operation,
                ElementType type, Memory data, Memory scratch, std::span<std::byte> staging, MpiForm form);

  void start_call();
  void require_memory(Memory data, Memory scratch, std::span<std::byte> staging) const;
  void call();
  void reduce_scatter();
  void all_gather();
  void reduce();
  void gather();
  void scatter();
  void all_to_all();
  void send_receive();
  void send();
  /// MPI_Sendrecv of these ranges of what MPI is given.
  void exchange(Range const& sent, Rank to, Range const& received, Rank from);
  void bring_result() const;
  bool is_in_place() const { return m_form == MpiForm::in_place; }
  bool is_root() const { return m_communicator->rank() == m_problem.root; }
  std::size_t bytes(Index elements) const { return static_cast<std::size_t>(elements) * size_of(m_type); }
  int own_count() const { return m_counts[static_cast<std::size_t>(m_communicator->rank())]; }
  std::byte* own_block() const { return m_given + bytes(m_problem.partition.range(m_communicator->rank()).begin); }

  ExecutionSpace m_exec;
  Communicator const* m_communicator;
  Problem m_problem;
  CollectiveCall m_call;
  Operation m_operation;
  ElementType m_type;
  MessageBuffers m_buffers;
  MpiForm m_form;
  bool m_equal_blocks;
  std::vector<int> m_counts;  ///< elements: per block, or of an all-to-all per peer
  std::vector<int> m_offsets; ///< elements: where they begin
  Range m_read{0, 0};         ///< by the call, on this rank
  Range m_held{0, 0};         ///< by this rank at the end
  Range m_written{0, 0};      ///< by the call, on this rank: as held, but for a root that only sends
  std::byte* m_data;
  std::byte* m_given;        ///< to MPI: the data itself, or its copy
  std::byte* m_given_result; ///< to MPI: the second buffer, or its copy
  std::byte const* m_result; ///< where MPI puts the elements of m_written
};

} // namespace trainstone
