#include "products/execution/distributed_product.hpp"

#include "core/host_copy.hpp"

#include <algorithm>
#include <span>

namespace trainstone {

namespace {

constexpr std::array lines{Line::x, Line::y, Line::z};

GemmShape shape_of(ProductStep const& step, Storage inputs) {
  return {.m = step.size.m,
          .n = step.size.n,
          .k = step.size.k,
          .mode = step.adds ? Write::add : Write::overwrite,
          .inputs = inputs,
          .output = Storage::fp32};
}

template <class Void>
Impl::StoredMatrix<Void> as_matrix(Impl::StoredVector<Void> const& vector, Index rows, Index columns) {
  Impl::StoredMatrix<Void> matrix;
  matrix.data = vector.data;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.storage = vector.storage;
  return matrix;
}

/// The halves of data, the second one first.
Pieces second_half_first(Index elements) {
  Pieces pieces;
  pieces.append({elements / 2, elements});
  pieces.append({0, elements / 2});
  return pieces;
}

bool is_empty(ProductSize const& size) { return size.m == 0 || size.n == 0; }

} // namespace

std::uint64_t product_gemm_scratch(ProductPlan const& plan, Storage inputs, GemmProvider gemm) {
  std::uint64_t bytes = 0;
  for (ProductStep const& step : plan.steps)
    if (step.act == ProductStep::Act::multiply && !is_empty(step.size) && step.size.k > 0)
      bytes = std::max(bytes, gemm_scratch_bytes(gemm, shape_of(step, inputs)));
  return bytes;
}

DistributedProduct::DistributedProduct(ExecutionSpace const& exec, Communicator& world, MemoryLedger& ledger,
                                       ProductPlan const& plan, Storage inputs, GemmProvider gemm)
    : m_exec(exec), m_plan(&plan), m_inputs(inputs) {
  for (std::size_t i = 0; i < product_buffers; ++i)
    m_buffers[i] =
        allocate(ledger, "product", storage_of_operand(operand_of(static_cast<ProductBuffer>(i))), plan.elements[i]);
  allocate_shared_memory(ledger, world.buffers(), gemm);
  for (Line const one : lines)
    if (plan.grid.size(one) > 1)
      m_lines[static_cast<std::size_t>(one)].emplace(world.split(plan.grid.number(one, plan.rank)));
  for (ProductStep const& step : plan.steps)
    if (step.act == ProductStep::Act::exchange) prepare(step);
}

StoredVector DistributedProduct::allocate(MemoryLedger& ledger, std::string const& label, Storage storage,
                                          Index elements) {
  std::uint64_t const bytes = static_cast<std::uint64_t>(elements) * bytes_per_value(storage);
  m_memory.emplace_back(ledger, MemoryCategory::buffers, label, memory_footprint(bytes));
  Arena arena(m_memory.back().bytes());
  return take_vector(arena, storage, label, elements);
}

/// What steps use one after the other.
void DistributedProduct::allocate_shared_memory(MemoryLedger& ledger, MessageBuffers buffers, GemmProvider gemm) {
  std::uint64_t scratch = 0, staging = 0;
  for (ProductStep const& step : m_plan->steps) {
    if (step.act != ProductStep::Act::exchange) continue;
    std::size_t const element = bytes_per_value(storage_of_operand(step.operand));
    Schedule const schedule = schedule_of(*m_plan, step);
    scratch = std::max(scratch, static_cast<std::uint64_t>(schedule.scratch_elements) * element);
    staging = std::max(staging, staging_bytes(buffers, schedule, element));
  }
  auto const bytes = [&](std::string const& label, std::uint64_t size) {
    m_memory.emplace_back(ledger, MemoryCategory::buffers, label, memory_footprint(size));
    return m_memory.back().bytes();
  };
  m_scratch = bytes("scratch", scratch);
  m_gemm.emplace(GemmChoice(gemm), bytes("scratch of products", product_gemm_scratch(*m_plan, m_inputs, gemm)));
  m_pinned = PinnedMemory(ledger, "staging", memory_footprint(staging));
  m_staging = m_pinned.take(staging);
}

void DistributedProduct::prepare(ProductStep const& step) {
  StoredVector const data = slice(step.data);
  Schedule const schedule = schedule_of(*m_plan, step);
  StoredVector scratch = data;
  scratch.data = m_scratch.data();
  scratch.size = schedule.scratch_elements;
  m_exchanges.emplace_back(
      m_exec, line(step.line), schedule, Operation::sum, data, scratch,
      ExecutionOptions{.pieces = step.swapped ? second_half_first(data.size) : Pieces(), .staging = m_staging});
}

void DistributedProduct::fill(ProductValue const& value) {
  for (Operand const operand : {Operand::a, Operand::b}) {
    std::optional<HeldBlock> const held = held_block(*m_plan, operand);
    if (!held || held->share.empty()) continue;
    StoredVector const to = slice(held->slice);
    with_storage(to.storage, [&]<class T>() {
      std::vector<T> values;
      values.reserve(static_cast<std::size_t>(held->share.size()));
      for (Index element = held->share.begin; element < held->share.end; ++element) {
        Index const row = held->rows.begin + element / held->columns.size(),
                    column = held->columns.begin + element % held->columns.size();
        values.push_back(from_float<T>(value(operand, row, column)));
      }
      copy_from_host<T>(m_exec, std::span<T const>(values), to.as<T>(), "trainstone::products::fill: values are set");
    });
  }
}

void DistributedProduct::multiply(ProductStep const& step) {
  if (is_empty(step.size)) return;
  auto const [m, n, k] = step.size;
  ConstStoredVector const a = slice(step.a), b = slice(step.b);
  (*m_gemm)(m_exec, Transpose::no, as_matrix(a, m, k), Transpose::no, as_matrix(b, k, n),
            as_matrix(slice(step.to_c), m, n), step.adds ? Write::add : Write::overwrite);
}

void DistributedProduct::run() {
  auto exchange = m_exchanges.begin();
  for (ProductStep const& step : m_plan->steps) {
    switch (step.act) {
    case ProductStep::Act::copy: {
      StoredVector const from = slice(step.from), to = slice(step.to);
      with_storage(from.storage, [&]<class T>() { Kokkos::deep_copy(m_exec, to.as<T>(), from.as<T>()); });
      break;
    }
    case ProductStep::Act::exchange: (exchange++)->run(); break;
    case ProductStep::Act::multiply: multiply(step); break;
    }
  }
  m_exec.fence("trainstone::products::run: the product is complete");
}

void DistributedProduct::multiply_alone() {
  for (ProductStep const& step : m_plan->steps)
    if (step.act == ProductStep::Act::multiply) multiply(step);
  m_exec.fence("trainstone::products::multiply_alone: the products are timed");
}

std::vector<float> DistributedProduct::result() const {
  std::optional<HeldBlock> const held = held_block(*m_plan, Operand::c);
  if (!held) return {};
  return copy_to_host(m_exec, ConstStoredVector(slice(held->slice)), "trainstone::products::result: the host reads it");
}

} // namespace trainstone
