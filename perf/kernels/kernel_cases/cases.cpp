#include "kernel_cases/cases.hpp"

#include "core/host_copy.hpp"
#include "core/types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace trainstone {

namespace {

std::size_t size_of(Element element) { return element == Element::fp64 ? 8 : element == Element::fp32 ? 4 : 2; }

/// A whole number from -64 to 64: the bits of index and tensor, well mixed (SplitMix64's last step).
KOKKOS_INLINE_FUNCTION double whole_number(std::uint64_t index, std::uint64_t tensor) {
  std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15u + tensor * 0xd1b54a32d192ed03u;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>((mixed ^ mixed >> 31) % 129) - 64.0;
}

template <class T>
KOKKOS_INLINE_FUNCTION T converted(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return from_float<T>(static_cast<float>(value));
}

template <class T>
void fill_vector(ExecutionSpace const& exec, Vector<T> values, std::uint64_t tensor, double scale, double offset) {
  Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>> const all(exec, 0,
                                                                          static_cast<Index>(values.extent(0)));
  Kokkos::parallel_for(
      "trainstone::perf::fill", all, KOKKOS_LAMBDA(Index i) {
        double const value = offset + scale * whole_number(static_cast<std::uint64_t>(i), tensor) / 64;
        values(i) = converted<T>(value);
      });
}

template <class T>
std::vector<double> widened(ExecutionSpace const& exec, Vector<T> values) {
  std::vector<double> result;
  for (T const value : copy_to_host(exec, values, "trainstone::perf: the host checks values")) {
    if constexpr (std::is_same_v<T, double>)
      result.push_back(value);
    else
      result.push_back(static_cast<double>(to_float(value)));
  }
  return result;
}

GptConfig preset(std::string_view name) { return find_preset(name).value(); }

} // namespace

std::vector<BenchmarkShape> const& benchmark_shapes() {
  MicroBatchShape const of_deck{4, 64}; // of inputs/gpt2-124m.toml
  // of attention alone, by batch x sequence x heads x channels of a head
  auto const attention = [](Index batch, Index sequence, Index heads, Index size) -> BenchmarkShape {
    return {fmt::format("{}x{}x{}x{}", batch, sequence, heads, size),
            {1, heads, heads * size, sequence, 1},
            {batch, sequence},
            CaseSet::flash_attention};
  };
  static std::vector<BenchmarkShape> const shapes{{"odd", {2, 3, 39, 41, 101}, {3, 37}},
                                                  {"6x384", {6, 6, 384, 256, 8192}, {4, 256}},
                                                  {"gpt2", preset("gpt2"), of_deck},
                                                  {"quickstart", {4, 2, 160, 128, 256}, {4, 128}, CaseSet::products},
                                                  {"gpt2-medium", preset("gpt2-medium"), of_deck, CaseSet::products},
                                                  {"gpt2-large", preset("gpt2-large"), of_deck, CaseSet::products},
                                                  {"gpt2-xl", preset("gpt2-xl"), of_deck, CaseSet::products},
                                                  attention(2, 64, 3, 64),
                                                  attention(16, 1024, 12, 64),
                                                  attention(16, 1024, 12, 128),
                                                  attention(64, 1024, 12, 64)};
  return shapes;
}

std::vector<BenchmarkShape> checked_shapes() {
  return {benchmark_shapes().front(), {"odd, heads of 64", {2, 3, 192, 41, 101}, {3, 37}}};
}

BenchmarkMemory::BenchmarkMemory(ExecutionSpace const& exec, std::vector<BenchmarkTensor> const& tensors)
    : m_exec(exec), m_tensors(tensors) {
  for (BenchmarkTensor const& tensor : tensors)
    m_memory.emplace_back(Kokkos::view_alloc(exec, "trainstone::perf", Kokkos::WithoutInitializing),
                          static_cast<std::size_t>(tensor.count) * size_of(tensor.element));
  fill();
}

void BenchmarkMemory::fill(std::size_t i) const {
  auto const& [count, element, scale, offset, bound, restored] = m_tensors[i];
  switch (element) {
  case Element::fp32: return fill_vector(m_exec, vector<float>(i), i, scale, offset);
  case Element::bf16: return fill_vector(m_exec, vector<bf16>(i), i, scale, offset);
  case Element::fp64: return fill_vector(m_exec, vector<double>(i), i, scale, offset);
  }
}

void BenchmarkMemory::fill() const {
  for (std::size_t i = 0; i < m_tensors.size(); ++i) fill(i);
}

void BenchmarkMemory::restore() const {
  for (std::size_t i = 0; i < m_tensors.size(); ++i)
    if (m_tensors[i].restored) fill(i);
}

std::vector<std::vector<double>> BenchmarkMemory::values() const {
  std::vector<std::vector<double>> all;
  for (std::size_t i = 0; i < m_tensors.size(); ++i) {
    switch (m_tensors[i].element) {
    case Element::fp32: all.push_back(widened(m_exec, vector<float>(i))); break;
    case Element::bf16: all.push_back(widened(m_exec, vector<bf16>(i))); break;
    case Element::fp64: all.push_back(widened(m_exec, vector<double>(i))); break;
    }
  }
  return all;
}

std::vector<KernelCase> kernel_cases(BenchmarkShape const& shape, Storage storage) {
  std::vector<KernelCase> cases;
  auto const append = [&](std::vector<KernelCase> part) {
    cases.insert(cases.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  };
  if (shape.cases == CaseSet::flash_attention) return flash_attention_cases(shape, storage);
  if (shape.cases == CaseSet::all) {
    append(row_cases(shape, storage));
    append(attention_cases(shape, storage));
    append(vector_cases(shape, storage));
  }
  append(gemm_cases(shape, storage));
  return cases;
}

std::vector<std::int32_t> some_tokens(Index count, Index vocab) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (Index n = 0; n < count; ++n)
    tokens[static_cast<std::size_t>(n)] = static_cast<std::int32_t>((n * n + 3 * n) % vocab);
  return tokens;
}

TokenMemory in_memory(ExecutionSpace const& exec, std::vector<std::int32_t> const& tokens) {
  TokenMemory const memory(Kokkos::view_alloc(exec, "trainstone::perf::tokens"), tokens.size());
  copy_from_host<std::int32_t>(exec, tokens, Vector<std::int32_t>(memory.data(), tokens.size()),
                               "trainstone::perf: kernels read the tokens");
  return memory;
}

} // namespace trainstone
