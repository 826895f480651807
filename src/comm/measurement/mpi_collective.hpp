#pragma once

// The library's own collectives on the same problems: baseline of measurements and reference of tests. Owns the
// translation of a Problem into one call of MPI. Promises: the same meaning and the same place of the result as
// problem.hpp says, in place; of the calls that MPI has for it the plain one where all blocks are equal (what a user
// would write), the one with counts where they are not. Is not counted: it is not ours.

#include "comm/communicator.hpp"
#include "comm/element.hpp"
#include "comm/problem.hpp"
#include "core/views.hpp"

#include <string>
#include <utility>
#include <vector>

namespace trainstone {

/// Why MPI has no collective for this ("MPI has no 16-bit floating-point type to add up"); empty if it has.
/// Sums of bf16 and fp16 are left out even where a library could do them: MPI has no standard type for them, and what
/// a library's own type is added up and rounded in is not defined.
std::string mpi_refusal(Problem const& problem, ElementType type);

class MpiCollective {
public:
  /// \param[in]     exec    waited for before MPI touches the data    \param[in] communicator must outlive this
  /// \param[in,out] data    (problem.elements())
  /// \throws InputError if mpi_refusal() has a reason    \throws Error if the extents differ
  template <class T>
  MpiCollective(ExecutionSpace const& exec, Communicator const& communicator, Problem problem, Operation operation,
                Vector<T> data)
      : MpiCollective(exec, communicator, std::move(problem), operation, element_type_of<T>(),
                      reinterpret_cast<std::byte*>(data.data()), static_cast<Index>(data.extent(0))) {}

  /// The call; the data is complete on return.
  void run();

private:
  MpiCollective(ExecutionSpace const& exec, Communicator const& communicator, Problem problem, Operation operation,
                ElementType type, std::byte* data, Index elements);

  void reduce_scatter();
  void all_gather();
  void reduce();
  void gather();
  void scatter();
  void all_to_all();
  bool is_root() const { return m_communicator->rank() == m_problem.root; }
  std::byte* own_block() const;

  ExecutionSpace m_exec;
  Communicator const* m_communicator;
  Problem m_problem;
  CollectiveCall m_call;
  Operation m_operation;
  ElementType m_type;
  std::byte* m_data;
  bool m_equal_blocks;
  std::vector<int> m_counts;       ///< elements: per block, or of an all-to-all per peer
  std::vector<int> m_offsets;      ///< elements: where they begin
  std::vector<std::byte> m_result; ///< of a reduce-scatter of unequal blocks
};

} // namespace trainstone
