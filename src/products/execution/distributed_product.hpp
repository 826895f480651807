#pragma once

// A distributed product on MPI: the memory of a rank's plan, the communicators of its lines, its exchanges as prepared
// executions, and its local products. Promises: it sends and keeps what the plan says, through the communicator's
// buffers (staged ones included). Does not choose grids, and does not measure.

#include "comm/execution/buffers.hpp"
#include "comm/execution/communicator.hpp"
#include "comm/execution/execution.hpp"
#include "core/memory.hpp"
#include "kernels/gemm/gemm.hpp"
#include "products/plan/product.hpp"
#include "products/plan/product_counts.hpp"

#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

namespace trainstone {

/// The number in a row and a column of A or B.
using ProductValue = std::function<float(Operand operand, Index row, Index column)>;

class DistributedProduct {
public:
  /// Collective over `world`, which has the ranks of the plan's grid. Everything referred to must outlive the object.
  /// \param[in] inputs  how A and B are stored; C is fp32   \param[in] gemm  who multiplies
  /// \throws InputError if the provider refuses the products
  DistributedProduct(ExecutionSpace const& exec, Communicator& world, MemoryLedger& ledger, ProductPlan const& plan,
                     Storage inputs, GemmProvider gemm);
  DistributedProduct(DistributedProduct const&) = delete;
  DistributedProduct& operator=(DistributedProduct const&) = delete;

  /// Sets this rank's parts of A and B, the padding included.
  void fill(ProductValue const& value);
  /// Multiplies what fill() has set. Shifted blocks are elsewhere afterwards: another run takes as long, but its result
  /// means nothing until fill() has been called again. Collective; complete on return.
  void run();
  /// The local products alone, of whatever lies there. Complete on return.
  void multiply_alone();
  /// This rank's part of C (held_block()), row by row.
  std::vector<float> result() const;

  ProductPlan const& plan() const { return *m_plan; }

private:
  StoredVector slice(ProductSlice const& slice) const {
    return m_buffers[static_cast<std::size_t>(slice.buffer)].part(slice.range.begin, slice.range.size());
  }
  Communicator& line(Line line) { return *m_lines[static_cast<std::size_t>(line)]; }
  StoredVector allocate(MemoryLedger& ledger, std::string const& label, Storage storage, Index elements);
  void allocate_shared_memory(MemoryLedger& ledger, MessageBuffers buffers, GemmProvider gemm);
  void prepare(ProductStep const& step);
  void multiply(ProductStep const& step);
  Storage storage_of_operand(Operand operand) const { return operand == Operand::c ? Storage::fp32 : m_inputs; }

  ExecutionSpace m_exec;
  ProductPlan const* m_plan;
  Storage m_inputs;
  std::vector<Allocation> m_memory;
  std::array<StoredVector, product_buffers> m_buffers;
  Vector<std::byte> m_scratch; ///< of one exchange at a time
  PinnedMemory m_pinned;       ///< copies of its messages, where they are staged
  std::span<std::byte> m_staging;
  std::array<std::optional<Communicator>, 3> m_lines; ///< of lines of more than one rank
  std::deque<Execution> m_exchanges;                  ///< in the order of the plan's
  std::optional<Gemm> m_gemm;
};

/// What its local products want of the provider, in bytes.
std::uint64_t product_gemm_scratch(ProductPlan const& plan, Storage inputs, GemmProvider gemm);

} // namespace trainstone
