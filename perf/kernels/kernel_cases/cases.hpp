#pragma once

// What perf_kernels measures, as values: every kernel of a training step with its tensors at the extents of a model's
// micro-batch, its reference in fp64, how far it may be off, and the ways to compute it. Owns the tables of kernels and
// of the model's matrix products, and the tensors' memory. Does not measure.
//
// Tensors start with small multiples of a power of two: where that is all that goes in, sums, and sums of products of
// two, are exact in fp32 at the extents that are checked, in any order. The error before storing is then 0.

#include "core/storage.hpp"
#include "core/views.hpp"
#include "model/activations.hpp"
#include "model/config.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace trainstone {

/// Which kernels are measured at a shape.
enum class CaseSet {
  all,
  products,
  flash_attention, ///< forward and backward, by every provider that takes the heads
};

/// A micro-batch of a model.
struct BenchmarkShape {
  std::string name;
  GptConfig config;
  MicroBatchShape batch;
  CaseSet cases = CaseSet::all;
};

/// `odd` first.
std::vector<BenchmarkShape> const& benchmark_shapes();
/// `odd`, on which every kernel is checked, and one with larger heads for those that must have them.
std::vector<BenchmarkShape> checked_shapes();

enum class Element { fp32, bf16, fp64 };

constexpr Element element_of(Storage storage) { return storage == Storage::fp32 ? Element::fp32 : Element::bf16; }

/// Given the right value: how far a kernel's may be from it.
using Bound = std::function<double(double)>;

struct BenchmarkTensor {
  Index count;
  Element element;
  double scale = 1; ///< starts with offset + scale * i / 64 for whole numbers i from -64 to 64
  double offset = 0;
  Bound bound = {};      ///< none: an input, which stays as it is
  bool restored = false; ///< before every call: else calls in a row would leave the range of the type
};

/// The tensors of a benchmark. Copies share them.
class BenchmarkMemory {
public:
  BenchmarkMemory(ExecutionSpace const& exec, std::vector<BenchmarkTensor> const& tensors);

  /// All tensors as they start.
  void fill() const;
  /// Those that are restored.
  void restore() const;
  std::vector<std::vector<double>> values() const;

  template <class T>
  Vector<T> vector(std::size_t i) const {
    return Vector<T>(reinterpret_cast<T*>(m_memory[i].data()), static_cast<std::size_t>(m_tensors[i].count));
  }
  template <class T>
  Matrix<T> matrix(std::size_t i, Index columns) const {
    auto const width = static_cast<std::size_t>(columns);
    return Matrix<T>(vector<T>(i).data(), vector<T>(i).size() / width, width);
  }

private:
  void fill(std::size_t i) const;

  ExecutionSpace m_exec;
  std::vector<BenchmarkTensor> m_tensors;
  std::vector<Kokkos::View<std::byte*, MemorySpace>> m_memory;
};

using KernelCall = std::function<void()>;

struct KernelCase {
  std::string name;
  std::vector<std::string> variants; ///< ways to compute it, ours first
  std::vector<BenchmarkTensor> tensors;
  /// The call of a variant, which does not fence. May itself compute what the kernel reads. Keeps `memory` and all
  /// else.
  std::function<KernelCall(ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& memory)> bind;
  /// Turns the tensors' values before the call into those after it.
  std::function<void(std::vector<std::vector<double>>& values)> reference;
  /// What is wrong with some elements of the result, if anything: for shapes that are too large for `reference`. May be
  /// missing.
  std::function<std::string(std::vector<std::vector<double>> const& after)> check_spots = {};
};

/// The kernels of a step of a model whose values and gradients are stored so.
std::vector<KernelCase> kernel_cases(BenchmarkShape const& shape, Storage storage);

// The parts of that table, each in a file of its own: per row, attention and loss, over vectors; and the model's matrix
// products by every provider.
std::vector<KernelCase> row_cases(BenchmarkShape const& shape, Storage storage);
std::vector<KernelCase> attention_cases(BenchmarkShape const& shape, Storage storage);
std::vector<KernelCase> flash_attention_cases(BenchmarkShape const& shape, Storage storage);
std::vector<KernelCase> vector_cases(BenchmarkShape const& shape, Storage storage);
std::vector<KernelCase> gemm_cases(BenchmarkShape const& shape, Storage storage);

// What the tables are made with.

inline constexpr double unit_roundoff = 0x1p-24; ///< of fp32

/// How far storing moves a value of that magnitude.
inline double storing_error(Storage storage, double magnitude) {
  return storage == Storage::fp32 ? 0 : 0x1p-8 * std::abs(magnitude);
}

/// Of a result in fp32 that is off by `error` and then stored.
inline Bound stored_within(Storage storage, double error) {
  return [=](double value) { return error + storing_error(storage, std::abs(value) + error); };
}

/// The call of a kernel or of its plain form, which take the same.
template <class... Parameters>
KernelCall call_of(std::size_t variant, void (*ours)(ExecutionSpace const&, Parameters...),
                   void (*plain)(ExecutionSpace const&, Parameters...), ExecutionSpace const& exec,
                   std::type_identity_t<std::remove_cvref_t<Parameters>> const&... arguments) {
  return [function = variant == 0 ? ours : plain, exec, arguments...] { function(exec, arguments...); };
}

/// Tokens of a micro-batch, some of them more than once.
std::vector<std::int32_t> some_tokens(Index count, Index vocab);
using TokenMemory = Kokkos::View<std::int32_t*, MemorySpace>;
TokenMemory in_memory(ExecutionSpace const& exec, std::vector<std::int32_t> const& tokens);

} // namespace trainstone
