// The matrix products of a model's step, with what is done to them besides, by every provider.

#include "kernel_cases/cases.hpp"

#include "core/error.hpp"
#include "core/stored.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/reference/reference.hpp"
#include "model/work.hpp"

#include <algorithm>
#include <memory>

namespace trainstone {

namespace {

using Values = std::vector<std::vector<double>>;

enum Operand : std::size_t { A, B, C, Bias, Pre };

/// Who rounds fp32 computes something else.
bool can_compute(GemmProvider provider, Storage storage) { return storage != Storage::fp32 || !rounds_fp32(provider); }

std::vector<GemmProvider> providers(Storage storage) {
  std::vector<GemmProvider> result;
  for (GemmProvider const provider : built_gemm_providers())
    if (can_compute(provider, storage)) result.push_back(provider);
  return result;
}

/// Products of numbers of 7 bits are exact in fp32 before they are stored. Some providers store them before anything
/// else is done: `twice`, and that after a sum with a bias of at most 1.
std::vector<BenchmarkTensor> tensors_of(GemmShape const& shape) {
  Storage const storage = shape.inputs;
  Element const element = element_of(storage);
  double const k = static_cast<double>(shape.k);
  Bound const once = stored_within(storage, 0);
  Bound const twice = [=](double value) {
    double const largest = std::abs(value) + 2;
    return storing_error(storage, largest) + storing_error(storage, value) + 8 * unit_roundoff * largest;
  };
  std::vector<BenchmarkTensor> tensors{
      {shape.m * shape.k, element}, {shape.k * shape.n, element}, {shape.m * shape.n, element, 1, 0, once}};
  switch (shape.epilogue) {
  case EpilogueKind::none: return tensors;
  case EpilogueKind::bias:
    tensors[C].bound = twice;
    tensors.push_back({shape.n, element});
    return tensors;
  case EpilogueKind::bias_gelu:
    // the GELU's slope is at most 1.13; it may be small where its argument, up to 3, is not
    tensors[C].bound = [=](double value) {
      return 1.13 * twice(std::max(std::abs(value), 3.0)) + storing_error(storage, std::abs(value) + 0.01) +
             unit_roundoff * (6 * std::abs(value) + 8);
    };
    tensors.push_back({shape.n, element});
    tensors.push_back({shape.m * shape.n, element, 1, 0, twice});
    return tensors;
  case EpilogueKind::gelu_gradient:
    // a product, at most k, may be stored before it is multiplied with a slope that is off by some roundings
    tensors[C].bound = [=](double value) {
      return 1.13 * storing_error(storage, k) + 16 * unit_roundoff * k + storing_error(storage, value);
    };
    tensors.push_back({0, element});
    tensors.push_back({shape.m * shape.n, element, 3});
    return tensors;
  case EpilogueKind::bias_gradient: tensors.push_back({shape.m, element, 1, 0, once}); return tensors;
  }
  return tensors;
}

void compute_reference(GemmShape const& shape, Values& v) {
  std::ranges::fill(v[C], 0.0);
  reference::gemm({shape.m, shape.n, shape.k, shape.a == Transpose::yes, shape.b == Transpose::yes}, v[A], v[B], v[C]);
  switch (shape.epilogue) {
  case EpilogueKind::none: break;
  case EpilogueKind::bias: reference::add_bias(v[Bias], v[C]); break;
  case EpilogueKind::bias_gelu:
    v[Pre] = v[C];
    reference::bias_gelu_forward(v[Bias], v[Pre], v[C]);
    break;
  case EpilogueKind::gelu_gradient: reference::gelu_backward(v[Pre], v[C]); break;
  case EpilogueKind::bias_gradient:
    std::ranges::fill(v[Bias], 0.0);
    reference::bias_backward(v[A], v[Bias]);
    break;
  }
}

/// Element (i, j) of C in fp64, of the operands as they are after the call.
double element_of_product(GemmShape const& shape, Values const& v, Index i, Index j) {
  double sum = 0;
  for (Index l = 0; l < shape.k; ++l) {
    Index const of_a = shape.a == Transpose::no ? i * shape.k + l : l * shape.m + i;
    Index const of_b = shape.b == Transpose::no ? l * shape.n + j : j * shape.k + l;
    sum += v[A][static_cast<std::size_t>(of_a)] * v[B][static_cast<std::size_t>(of_b)];
  }
  switch (shape.epilogue) {
  case EpilogueKind::none:
  case EpilogueKind::bias_gradient: return sum;
  case EpilogueKind::bias: return sum + v[Bias][static_cast<std::size_t>(j)];
  case EpilogueKind::bias_gelu: return reference::gelu(sum + v[Bias][static_cast<std::size_t>(j)]);
  case EpilogueKind::gelu_gradient:
    return sum * reference::gelu_derivative(v[Pre][static_cast<std::size_t>(i * shape.n + j)]);
  }
  return sum;
}

/// With signs at random, sums of up to 2^16 products stay far below 2^12, so that they are exact here, too.
std::string wrong_spots(GemmShape const& shape, Bound const& bound, Values const& v) {
  for (Index spot = 0; spot < 101; ++spot) {
    Index const i = spot * 7919 % shape.m, j = spot * 104729 % shape.n;
    double const wanted = element_of_product(shape, v, i, j), value = v[C][static_cast<std::size_t>(i * shape.n + j)];
    if (!(std::abs(value - wanted) <= bound(wanted)))
      return fmt::format("element ({}, {}) of {} x {} is {:.9g}, not {:.9g}", i, j, shape.m, shape.n, value, wanted);
  }
  return "";
}

template <class T>
Epilogue epilogue_of(GemmShape const& shape, BenchmarkMemory const& m) {
  switch (shape.epilogue) {
  case EpilogueKind::none: return {};
  case EpilogueKind::bias: return Epilogue::add_bias(m.vector<T>(Bias));
  case EpilogueKind::bias_gelu: return Epilogue::gelu(m.vector<T>(Bias), m.matrix<T>(Pre, shape.n));
  case EpilogueKind::gelu_gradient: return Epilogue::gelu_gradient(m.matrix<T>(Pre, shape.n));
  case EpilogueKind::bias_gradient: return Epilogue::gradient_of_bias(m.vector<T>(Bias));
  }
  return {};
}

template <class T>
KernelCall bind_gemm(ExecutionSpace const& exec, GemmShape const& shape, GemmProvider provider,
                     BenchmarkMemory const& m) {
  using Scratch = Kokkos::View<std::byte*, MemorySpace>;
  Scratch const scratch(Kokkos::view_alloc(exec, "trainstone::perf::scratch", Kokkos::WithoutInitializing),
                        gemm_scratch_bytes(provider, shape));
  auto const gemm = std::make_shared<Gemm>(provider, Vector<std::byte>(scratch.data(), scratch.extent(0)));
  Matrix<T> const a = m.matrix<T>(A, shape.a == Transpose::no ? shape.k : shape.m);
  Matrix<T> const b = m.matrix<T>(B, shape.b == Transpose::no ? shape.n : shape.k), c = m.matrix<T>(C, shape.n);
  return [=, epilogue = epilogue_of<T>(shape, m)] {
    (*gemm)(exec, shape.a, Matrix<T const>(a), shape.b, Matrix<T const>(b), c, shape.mode, epilogue);
    static_cast<void>(scratch); // lives as long as the call
  };
}

KernelCase gemm_case(GemmUse const& use) {
  GemmShape const shape = use.shape;
  std::string name = "gemm_" + use.name;
  std::ranges::replace(name, ' ', '_');
  std::vector<GemmProvider> const all = providers(shape.inputs);
  std::vector<std::string> names;
  for (GemmProvider const provider : all) names.emplace_back(to_string(provider));
  std::vector<BenchmarkTensor> const tensors = tensors_of(shape);
  return {name,
          names,
          tensors,
          [=](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
            return shape.inputs == Storage::fp32 ? bind_gemm<float>(exec, shape, all[variant], m)
                                                 : bind_gemm<bf16>(exec, shape, all[variant], m);
          },
          [shape](Values& v) { compute_reference(shape, v); },
          [shape, bound = tensors[C].bound](Values const& v) { return wrong_spots(shape, bound, v); }};
}

} // namespace

std::vector<KernelCase> gemm_cases(BenchmarkShape const& shape, Storage storage) {
  ModelStorage const stored{storage, storage};
  std::vector<GemmUse> uses = forward_gemms(shape.config, shape.batch, stored);
  std::vector<GemmUse> const backward = backward_gemms(shape.config, shape.batch, Write::overwrite, stored);
  uses.insert(uses.end(), backward.begin(), backward.end());
  std::vector<KernelCase> cases;
  for (GemmUse const& use : uses) cases.push_back(gemm_case(use));
  return cases;
}

} // namespace trainstone
