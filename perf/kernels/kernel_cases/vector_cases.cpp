// Kernels that go through whole vectors: optimizers, norm, sum, conversions, sums of gradients.

#include "kernel_cases/cases.hpp"
#include "kernel_cases/plain_kernels.hpp"

#include "core/stored.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/cast.hpp"
#include "kernels/norm.hpp"
#include "kernels/reference/reference.hpp"
#include "model/parameter_table.hpp"

#include <algorithm>

namespace trainstone {

namespace {

using Values = std::vector<std::vector<double>>;

std::vector<std::string> variants() { return {"ours", "plain"}; }

/// As many as the model has, but no more than what exceeds caches several times.
Index parameters(BenchmarkShape const& shape) {
  return std::min<Index>(ParameterTable(shape.config, 1).size(), Index{16} << 20);
}

constexpr AdamStep adam_step{.learning_rate = 1e-3F,
                             .beta1 = 0.9F,
                             .beta2 = 0.999F,
                             .epsilon = 1e-8F,
                             .weight_decay = 0.125F,
                             .gradient_scale = 0.5F,
                             .step = 10};
constexpr SgdStep sgd_step{.learning_rate = 1e-2F, .momentum = 0.875F, .weight_decay = 0.125F, .gradient_scale = 0.5F};

reference::AdamStep widened(AdamStep const& s) {
  auto const wide = [](float value) { return static_cast<double>(value); };
  return {wide(s.learning_rate), wide(s.beta1),          wide(s.beta2), wide(s.epsilon),
          wide(s.weight_decay),  wide(s.gradient_scale), s.step};
}

reference::SgdStep widened(SgdStep const& s) {
  auto const wide = [](float value) { return static_cast<double>(value); };
  return {wide(s.learning_rate), wide(s.momentum), wide(s.weight_decay), wide(s.gradient_scale)};
}

/// gradient, master, state of the optimizer, and the parameters unless they are the master copy.
template <class T>
std::vector<BenchmarkTensor> optimizer_tensors(Index count, std::vector<BenchmarkTensor> const& states) {
  Storage const storage = storage_of<T>();
  // two roundings of a parameter of at most 1, and those of its change, which is much smaller
  double const error = 3 * unit_roundoff;
  std::vector<BenchmarkTensor> tensors{{count, element_of(storage)},
                                       {count, Element::fp32, 1, 0, stored_within(Storage::fp32, error)}};
  tensors.insert(tensors.end(), states.begin(), states.end());
  if (storage != Storage::fp32) tensors.push_back({count, element_of(storage), 1, 0, stored_within(storage, error)});
  return tensors;
}

template <class T>
Vector<T> parameter_of(BenchmarkMemory const& m, std::size_t states) {
  return m.vector<T>(storage_of<T>() == Storage::fp32 ? 1 : 2 + states);
}

void round_parameter(Values& v, std::size_t states) {
  if (v.size() > 2 + states) v[2 + states] = v[1];
}

template <class T, class Update, class Reference>
KernelCase adam_case(char const* name, Index count, Update ours, Update plain, Reference of) {
  // below 1.2 and 1.7, each after some roundings
  BenchmarkTensor const m{count, Element::fp32, 1, 0, stored_within(Storage::fp32, 10 * unit_roundoff)};
  BenchmarkTensor const v{count, Element::fp32, 0.5, 1, stored_within(Storage::fp32, 10 * unit_roundoff)};
  return {name, variants(), optimizer_tensors<T>(count, {m, v}),
          [=](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& memory) {
            return call_of(variant, ours, plain, exec, memory.vector<T>(0), memory.vector<float>(1),
                           memory.vector<float>(2), memory.vector<float>(3), parameter_of<T>(memory, 2), adam_step);
          },
          [of](Values& values) {
            of(values[0], values[1], values[2], values[3], widened(adam_step));
            round_parameter(values, 2);
          }};
}

template <class T>
std::vector<KernelCase> optimizer_cases(Index count) {
  using Update = void (*)(ExecutionSpace const&, Vector<T const>, Vector<float>, Vector<float>, Vector<float>,
                          Vector<T>, AdamStep const&);
  Update const adamw = adamw_update<T, T>, adam = adam_update<T, T>;
  BenchmarkTensor const velocity{count, Element::fp32, 1, 0, stored_within(Storage::fp32, 10 * unit_roundoff)};
  KernelCase const sgd{"sgd_update", variants(), optimizer_tensors<T>(count, {velocity}),
                       [](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
                         return call_of(variant, sgd_update<T, T>, plain::sgd_update<T>, exec, m.vector<T>(0),
                                        m.vector<float>(1), m.vector<float>(2), parameter_of<T>(m, 1), sgd_step);
                       },
                       [](Values& v) {
                         reference::sgd_update(v[0], v[1], v[2], widened(sgd_step));
                         round_parameter(v, 1);
                       }};
  return {adam_case<T, Update>("adamw_update", count, adamw, plain::adamw_update<T>, reference::adamw_update),
          adam_case<T, Update>("adam_update", count, adam, plain::adam_update<T>, reference::adam_update), sgd};
}

/// Sums of squares, multiples of 2^-12, are exact. The sums of blocks are lost.
template <class T>
KernelCase squared_norm(Index count) {
  BenchmarkTensor const norm{1, Element::fp64, 1, 0, stored_within(Storage::fp32, 0)};
  BenchmarkTensor const lost{count / norm_block, Element::fp64, 1, 0, [](double) { return HUGE_VAL; }};
  return {"squared_norm",
          variants(),
          {{count, element_of(storage_of<T>())}, lost, norm},
          [](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
            Vector<T> const x = m.vector<T>(0);
            Vector<double> const blocks = m.vector<double>(1), result = m.vector<double>(2);
            return [=] {
              if (variant == 0) {
                squared_block_sums<T>(exec, x, blocks);
                tree_sum(exec, blocks, result);
              } else {
                plain::squared_norm<T>(exec, x, result);
              }
            };
          },
          [](Values& v) { v[2][0] = reference::squared_norm(v[0]); }};
}

/// Of the losses of a micro-batch.
KernelCase sum_case(Index rows) {
  return {"sum",
          variants(),
          {{rows, Element::fp32}, {1, Element::fp64, 1, 0, stored_within(Storage::fp32, 0)}},
          [](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
            return call_of(variant, sum, plain::sum, exec, m.vector<float>(0), m.vector<double>(1));
          },
          [](Values& v) { v[1][0] = reference::sum(v[0]); }};
}

template <class T>
KernelCase accumulate_case(Index count) {
  Storage const storage = storage_of<T>();
  return {"accumulate",
          variants(),
          {{count, element_of(storage)}, {count, element_of(storage), 1, 0, stored_within(storage, 0)}},
          [](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
            Vector<T> const from = m.vector<T>(0), to = m.vector<T>(1);
            return [=] {
              if (variant == 0)
                accumulate(exec, Write::add, Vector<T const>(from), to);
              else
                plain::accumulate<T>(exec, from, to);
            };
          },
          [](Values& v) {
            for (std::size_t i = 0; i < v[0].size(); ++i) v[1][i] += v[0][i];
          }};
}

/// Values that bf16 does not hold, so that they are rounded.
template <class From, class To>
KernelCase cast_case(char const* name, Index count) {
  Storage const from = storage_of<From>(), to = storage_of<To>();
  return {name,
          variants(),
          {{count, element_of(from), 0.7}, {count, element_of(to), 1, 0, stored_within(to, 0)}},
          [](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) {
            return call_of(variant, cast<From, To>, plain::cast<From, To>, exec, m.vector<From>(0), m.vector<To>(1));
          },
          [](Values& v) { v[1] = v[0]; }};
}

KernelCase round_case(Index count) {
  return {"round_to_bf16",
          variants(),
          {{count, Element::fp32, 0.7, 0, stored_within(Storage::bf16, 0), true}},
          [](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
            Vector<float> const values = m.vector<float>(0);
            return [=] {
              if (variant == 0)
                round_to(exec, Storage::bf16, values);
              else
                plain::round_to<bf16>(exec, values);
            };
          },
          [](Values& /*values*/) {}};
}

} // namespace

std::vector<KernelCase> vector_cases(BenchmarkShape const& shape, Storage storage) {
  Index const count = parameters(shape), rows = shape.batch.rows();
  if (storage == Storage::fp32) {
    std::vector<KernelCase> cases = optimizer_cases<float>(count);
    cases.insert(cases.end(), {squared_norm<float>(count), sum_case(rows), accumulate_case<float>(count)});
    return cases;
  }
  std::vector<KernelCase> cases = optimizer_cases<bf16>(count);
  cases.insert(cases.end(), {squared_norm<bf16>(count), accumulate_case<bf16>(count),
                             cast_case<float, bf16>("cast_from_fp32", count),
                             cast_case<bf16, float>("cast_to_fp32", count), round_case(count)});
  return cases;
}

} // namespace trainstone
