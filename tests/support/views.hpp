#pragma once

// Tensors for tests of kernels: made from host values, given to kernels as Views, read back. Owns its memory and
// copies on its own instance of the execution space; not for timing.

#include "core/host_copy.hpp"
#include "core/random.hpp"
#include "core/views.hpp"
#include "support/storage.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trainstone::test {

/// `count` different values, uniform in (low, high], the same in every run.
inline std::vector<float> random_values(Index count, std::uint64_t seed, double low = -2.0, double high = 2.0) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(low + (high - low) * uniform(random_block(seed, RandomStream::tests, i).words[0]));
  return values;
}

/// Memory on the device with host values in it.
template <class T>
class DeviceTensor {
public:
  explicit DeviceTensor(std::vector<T> const& values) : m_memory("test", values.size()) {
    copy_from_host<T>(m_exec, values, vector(), "test");
  }
  DeviceTensor(Index count, T value) : DeviceTensor(std::vector<T>(static_cast<std::size_t>(count), value)) {}

  std::size_t size() const { return m_memory.extent(0); }
  Vector<T> vector() const { return Vector<T>(m_memory.data(), m_memory.extent(0)); }
  Matrix<T> matrix(Index rows, Index columns) const {
    return Matrix<T>(m_memory.data(), static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
  }
  Tensor4<T> tensor(Index a, Index b, Index c, Index d) const {
    return Tensor4<T>(m_memory.data(), static_cast<std::size_t>(a), static_cast<std::size_t>(b),
                      static_cast<std::size_t>(c), static_cast<std::size_t>(d));
  }
  /// The values now; waits for every kernel of every instance, since tests launch on several.
  std::vector<T> values() const {
    Kokkos::fence("test reads a tensor");
    return copy_to_host<T>(m_exec, vector(), "test");
  }

private:
  ExecutionSpace m_exec;
  Kokkos::View<T*, Kokkos::LayoutRight, MemorySpace> m_memory;
};

/// The unit roundoff of fp32.
inline constexpr double roundoff = 0x1p-24;

} // namespace trainstone::test
