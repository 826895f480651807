#include "core/counters.hpp"

#include "core/error.hpp"

#include <utility>

namespace trainstone {

namespace {
thread_local Counters* counters_of_thread = nullptr;
thread_local KernelTable* table_of_thread = nullptr;
} // namespace

std::string_view to_string(Phase phase) {
  switch (phase) {
  case Phase::gemm: return "gemm";
  case Phase::attention: return "attention";
  case Phase::optimizer: return "adam";
  case Phase::communication: return "comm";
  case Phase::other: return "other";
  }
  TRAINSTONE_REQUIRE(false, "no phase {}", static_cast<int>(phase));
}

Counters& counters() {
  static Counters instance;
  return counters_of_thread ? *counters_of_thread : instance;
}

KernelTable* kernel_table() { return table_of_thread; }

ThreadKernelTable::ThreadKernelTable(KernelTable* table) : m_before(std::exchange(table_of_thread, table)) {}

ThreadKernelTable::~ThreadKernelTable() { table_of_thread = m_before; }

ThreadCounters::ThreadCounters(Counters& counted) : m_before(std::exchange(counters_of_thread, &counted)) {}

ThreadCounters::~ThreadCounters() { counters_of_thread = m_before; }

void add_work(Counters const& more) {
  Counters& all = counters();
  for (Phase const phase : phases) {
    all.launches[phase] += more.launches[phase];
    all.flops[phase] += more.flops[phase];
    all.bytes[phase] += more.bytes[phase];
  }
}

std::uint64_t model_flops(Counters const& counted) {
  return counted.flops[Phase::gemm] + counted.flops[Phase::attention];
}

std::uint64_t total_launches(Counters const& counted) {
  std::uint64_t sum = 0;
  for (Phase const phase : phases) sum += counted.launches[phase];
  return sum;
}

} // namespace trainstone
