#pragma once

// What a test model is compared with: the reference model of the same parameters, and the plan of kernels.

#include "core/counters.hpp"
#include "core/host_copy.hpp"
#include "model/gpt_fixture.hpp"
#include "model/llmc/llmc_parameters.hpp"
#include "model/parameter_runs.hpp"
#include "support/compare.hpp"
#include "support/reference_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace trainstone::test {

/// A whole tensor of a flat vector, of the slices that are here.
template <class T>
std::vector<double> whole_tensor(ExecutionSpace const& exec, ParameterTable const& table, ParameterTensor const& wanted,
                                 Vector<T> flat) {
  std::vector<double> const here = widened(copy_to_host(exec, flat, "test"));
  std::vector<double> whole(static_cast<std::size_t>(wanted.whole_size()), std::nan(""));
  ParameterGroup const& group = table.groups()[static_cast<std::size_t>(wanted.group)];
  for_each_run(table, wanted.group, {0, group.padded}, [&](ParameterRun const& run) {
    if (run.tensor.tensor == wanted.tensor)
      std::copy_n(here.begin() + group.offset + run.in_group, run.size, whole.begin() + run.in_whole);
  });
  return whole;
}

/// The reference model with the parameters of `model` as they are stored, after forward and backward.
template <class T, class Gradient>
struct Expected {
  Expected(ExecutionSpace const& exec, TestModel<T, Gradient> const& model, double loss_scale)
      : reference(llmc_shape_of(model.config)) {
    for (LlmcTensor const& tensor : reference.tensors())
      for (Index layer = 0; layer < tensor.layers; ++layer)
        std::ranges::copy(whole_tensor(exec, model.table, table_entry(model.table, tensor, layer), model.parameters),
                          reference.parameter(tensor.name, layer).begin());
    reference::DropoutSite const first_site{.rate = model.options.dropout, .seed = 11, .first_sample = 40, .site = 0};
    reference.drop(first_site); // nvcc 13.0 loses the braces of an argument here
    mean_loss = reference.forward(model.inputs, model.targets, model.rows.sequence);
    reference.backward(loss_scale);
  }

  ReferenceModel reference;
  double mean_loss;
};

template <class T, class Gradient>
double mean_loss(ExecutionSpace const& exec, TestModel<T, Gradient> const& model) {
  double sum = 0;
  for (float loss : copy_to_host(exec, model.gpt.losses(), "test")) sum += static_cast<double>(loss);
  return sum / static_cast<double>(model.rows.rows());
}

using SixteenBitTypes = std::tuple<Stored<bf16, bf16>, Stored<bf16, float>, Stored<fp16, fp16>, Stored<fp16, float>>;

/// Launches, FLOPs and bytes of all kernels of one name.
using Works = std::map<std::string, std::array<std::uint64_t, 3>>;

inline void add(Works& works, std::string const& name, std::uint64_t launches, std::uint64_t flops,
                std::uint64_t bytes) {
  auto& sum = works[name];
  sum[0] += launches;
  sum[1] += flops;
  sum[2] += bytes;
}

inline Works works_of(KernelTable const& counted) {
  Works works;
  for (auto const& [label, times] : counted) {
    std::string const name = label.substr(std::string("trainstone::").size());
    add(works, name.starts_with("gemm") ? "gemm" : name, times.launches, times.flops, times.bytes);
  }
  return works;
}

inline Works works_of(std::vector<KernelUse> const& uses, GemmChoice const& gemm) {
  Works works;
  for (KernelUse const& use : uses)
    for (KernelUse const& started : started_kernels(use, gemm)) {
      auto const count = static_cast<std::uint64_t>(started.count);
      add(works, started.product ? "gemm" : started.name, count, count * started.work.flops,
          count * started.work.bytes);
    }
  return works;
}

/// Of forward and backward of a micro-batch, with what blocks compute again.
template <class Model>
Works planned_works(Model const& model, Write mode) {
  auto uses = training_kernels(model.config, model.rows, model.options, mode, Model::storage);
  for (Index block = 0; block < model.config.layers; ++block)
    for (PartKind const kind : {PartKind::attention, PartKind::mlp}) {
      PartPass const again{.part = kind, .pass = Pass::recompute, .recompute = model.options.recompute_of(block)};
      std::ranges::copy(part_kernels(again, model.config, model.rows, model.options, Model::storage),
                        std::back_inserter(uses));
    }
  return works_of(uses, model.provider);
}

template <class Model>
Works counted_works(ExecutionSpace const& exec, Model& model, Write mode) {
  MicroBatch const batch = model.load();
  KernelTable counted;
  {
    ThreadKernelTable const counting(&counted);
    model.forward_backward(exec, batch, mode);
  }
  return works_of(counted);
}

} // namespace trainstone::test
