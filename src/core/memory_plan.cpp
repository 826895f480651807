#include "core/memory_plan.hpp"

#include "core/error.hpp"

#include <numeric>

namespace trainstone {

std::string_view to_string(MemoryCategory category) {
  switch (category) {
  case MemoryCategory::parameters: return "parameters";
  case MemoryCategory::gradients: return "gradients";
  case MemoryCategory::optimizer: return "optimizer";
  case MemoryCategory::activations: return "activations";
  case MemoryCategory::buffers: return "buffers";
  case MemoryCategory::data: return "data";
  }
  TRAINSTONE_REQUIRE(false, "no memory category {}", static_cast<int>(category));
}

std::uint64_t CategoryBytes::total() const { return std::accumulate(m_bytes.begin(), m_bytes.end(), std::uint64_t{0}); }

std::uint64_t total_bytes(std::vector<PlannedTensor> const& plan) {
  std::uint64_t sum = 0;
  for (PlannedTensor const& tensor : plan) sum += tensor.bytes;
  return sum;
}

} // namespace trainstone
