#include "model/gpt.hpp"

#include "core/timed_region.hpp"
#include "kernels/initialize.hpp"
#include "kernels/instantiate.hpp"
#include "model/gpt_parts_impl.hpp"

#include <utility>

#include <algorithm>

namespace trainstone {

Gpt::Gpt(GptConfig const& config, ParameterTable const& table, MicroBatchShape shape, Activations activations,
         Gemm& gemm, GptOptions const& options)
    : m_config(config),
      m_table(&table),
      m_shape(shape),
      m_activations(std::move(activations)),
      m_gemm(&gemm),
      m_options(options) {
  TRAINSTONE_REQUIRE(shape.sequence <= config.context, "sequence {} > context {}", shape.sequence, config.context);
}

/// body(parts) with the parts of the activations' type.
template <class Body>
void Gpt::with_parts(ExecutionSpace const& exec, Body const& body) const {
  std::visit(
      [&]<class T>(ActivationsOf<T> const& all) {
        body(Impl::GptParts<T>(exec, m_config, m_options, *m_table, m_shape, all, *m_gemm));
      },
      m_activations);
}

Storage Gpt::storage() const {
  return std::visit([]<class T>(ActivationsOf<T> const&) { return storage_of<T>(); }, m_activations);
}

Vector<float> Gpt::losses() const {
  return std::visit([](auto const& all) { return all.losses; }, m_activations);
}

StoredMatrix Gpt::output(Part part) const {
  return std::visit(
      [&](auto const& all) -> StoredMatrix {
        switch (part.kind) {
        case PartKind::embed: return all.embedded;
        case PartKind::attention: return all.blocks[static_cast<std::size_t>(part.block)].middle;
        case PartKind::mlp: return all.blocks[static_cast<std::size_t>(part.block)].output;
        case PartKind::head: return all.logits;
        }
        throw Error(fmt::format("no kind of part {}", static_cast<int>(part.kind)));
      },
      m_activations);
}

void Gpt::forward(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters) {
  TimedRegion const region([&] { return "trainstone::model::forward " + to_string(part); });
  with_parts(exec, [&]<class T>(Impl::GptParts<T> const& parts) { parts.forward(part, batch, parameters.as<T>()); });
}

void Gpt::loss(ExecutionSpace const& exec, MicroBatch const& batch, LossMode mode) {
  with_parts(exec, [&](auto const& parts) { parts.loss(batch, mode); });
}

void Gpt::backward(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
                   GradientTarget const& target, std::optional<Index> piece) {
  TimedRegion const region([&] { return "trainstone::model::backward " + to_string(part); });
  Index const first = piece.value_or(0);
  Index const end = piece ? *piece + 1 : std::ssize(first_tensors_of_pieces(part.kind));
  with_parts(exec, [&]<class T>(Impl::GptParts<T> const& parts) {
    for (Index one = first; one < end; ++one)
      if (target.gradients.storage == Storage::fp32)
        parts.backward(part, one, batch, parameters.as<T>(), target.gradients.as<float>(), target.write);
      else
        parts.backward(part, one, batch, parameters.as<T>(), target.gradients.as<T>(), target.write);
  });
}

void initialize_parameters(ExecutionSpace const& exec, ParameterTable const& table, Index group, std::uint64_t seed,
                           Range part, Vector<float> values) {
  Kokkos::deep_copy(exec, values, 0.0f);
  Index const offset = table.groups()[static_cast<std::size_t>(group)].offset;
  for (ParameterTensor const& entry : table.tensors()) {
    if (entry.group != group) continue;
    InitialValue const& initial = entry.initial;
    bool const random = initial.random_elements > 0;
    Index const first = entry.offset - offset, size = random ? initial.random_elements : entry.size();
    Range const here{std::max(first, part.begin), std::min(first + size, part.end)};
    if (here.end <= here.begin) continue;
    Vector<float> const out(values.data() + (here.begin - part.begin), static_cast<std::size_t>(here.size()));
    if (random)
      normal_fill<float>(exec, seed, initial.first_counter + (here.begin - first), initial.deviation, out);
    else if (initial.constant != 0)
      Kokkos::deep_copy(exec, out, static_cast<float>(initial.constant));
  }
}

} // namespace trainstone
