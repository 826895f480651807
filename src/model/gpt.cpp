#include "model/gpt.hpp"

#include "core/timed_region.hpp"
#include "kernels/common/instantiate.hpp"
#include "kernels/initialize.hpp"
#include "model/launched_kernels_impl.hpp"
#include "model/parameter_runs.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

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
  TRAINSTONE_REQUIRE(m_activations.places().stage() == table.stage(),
                     "parameters are of a stage of {} blocks, activations of another one of {}",
                     table.stage().blocks.size(), m_activations.places().stage().blocks.size());
}

namespace {

/// body(kernels) with an object that launches the part's kernels.
template <class Body>
void with_kernels(Impl::LaunchedPart const& part, Body const& body) {
  with_storage(part.activations.storage(), [&]<class T>() {
    Impl::LaunchedKernels<T> kernels(part);
    body(kernels);
  });
}

} // namespace

StoredMatrix Gpt::output(Part part, ActivationBuffers const& buffers) const {
  switch (part.kind) {
  case PartKind::embed: return m_activations.matrix(Activation::embedded, -1, buffers);
  case PartKind::attention: return m_activations.matrix(Activation::middle, part.block, buffers);
  case PartKind::mlp: return m_activations.matrix(Activation::output, part.block, buffers);
  case PartKind::head: return m_activations.matrix(m_options.splits_loss() ? Activation::lnf : Activation::logits, -1);
  }
  throw Error(fmt::format("no kind of part {}", static_cast<int>(part.kind)));
}

StoredMatrix Gpt::input(Index number) const {
  return m_activations.matrix(Activation::input, PlacedActivation::of_model, {.input = number});
}

StoredMatrix Gpt::chunk_output(Index chunk, Index slot) const {
  PlacedActivation const placed = m_activations.places().chunk_output(chunk);
  return m_activations.matrix(placed.what, placed.block, {.slot = slot});
}

StoredMatrix Gpt::stream_gradient(Index number) const {
  return m_activations.matrix(Activation::d_stream, PlacedActivation::of_model, {.gradient = number});
}

Impl::LaunchedPart Gpt::launched(ExecutionSpace const& exec, Part part, MicroBatch const& batch,
                                 ActivationBuffers const& buffers) const {
  return {.exec = exec,
          .config = m_config,
          .options = m_options,
          .table = *m_table,
          .shape = m_shape,
          .activations = m_activations,
          .gemm = *m_gemm,
          .part = part,
          .batch = batch,
          .buffers = buffers};
}

void Gpt::forward(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
                  ActivationBuffers const& buffers) {
  TimedRegion const region([&] { return "trainstone::model::forward " + to_string(part); });
  Impl::LaunchedPart launched_part = launched(exec, part, batch, buffers);
  launched_part.parameters = parameters;
  with_kernels(launched_part, [&](PartKernels& kernels) { describe_forward(part.kind, kernels); });
}

void Gpt::loss(ExecutionSpace const& exec, MicroBatch const& batch, LossMode mode, ConstStoredVector parameters,
               std::optional<Index> chunk, ActivationBuffers const& buffers) {
  TRAINSTONE_REQUIRE(m_table->stage().head, "a stage without head has no loss");
  TRAINSTONE_REQUIRE(chunk.has_value() == m_options.splits_loss(), "the loss is computed in {} chunks",
                     m_options.loss_chunks);
  Impl::LaunchedPart launched_part = launched(exec, {PartKind::head}, batch, buffers);
  launched_part.mode = mode;
  launched_part.parameters = parameters;
  launched_part.chunk = chunk;
  with_kernels(launched_part, [&](PartKernels& kernels) { describe_loss(kernels); });
}

void Gpt::recompute(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
                    ActivationBuffers const& buffers) {
  TimedRegion const region([&] { return "trainstone::model::recompute " + to_string(part); });
  Impl::LaunchedPart launched_part = launched(exec, part, batch, buffers);
  launched_part.parameters = parameters;
  Recompute const how = m_options.recompute_of(part.block);
  with_kernels(launched_part, [&](PartKernels& kernels) { describe_recompute(part.kind, how, kernels); });
}

void Gpt::backward(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
                   GradientTarget const& target, std::optional<Index> piece, ActivationBuffers const& buffers) {
  TimedRegion const region([&] { return "trainstone::model::backward " + to_string(part); });
  Impl::LaunchedPart launched_part = launched(exec, part, batch, buffers);
  launched_part.parameters = parameters;
  launched_part.gradients = target.gradients;
  launched_part.looked_up = target.looked_up;
  launched_part.write = target.write;
  std::vector<DescribePiece> const all = backward_pieces(part.kind, m_options);
  std::span<DescribePiece const> pieces = all;
  if (piece) pieces = pieces.subspan(static_cast<std::size_t>(*piece), 1);
  if (part.kind == PartKind::head && m_options.splits_loss()) {
    TRAINSTONE_REQUIRE(piece.has_value(), "the backward of head has {} pieces", all.size());
    if (*piece < m_options.loss_chunks) launched_part.chunk = piece;
    if (*piece > 0 && launched_part.chunk) launched_part.write = Write::add; // to the chunks before
  }
  with_kernels(launched_part, [&](PartKernels& kernels) {
    for (DescribePiece const describe : pieces) describe(kernels);
  });
}

void initialize_parameters(ExecutionSpace const& exec, ParameterTable const& table, Index group, std::uint64_t seed,
                           Range part, Vector<float> values) {
  Kokkos::deep_copy(exec, values, 0.0f);
  for_each_run(table, group, part, [&](ParameterRun const& run) {
    InitialValue const& initial = run.tensor.initial;
    bool const random = initial.random_elements > 0;
    Index const size = random ? std::min(run.size, initial.random_elements - run.in_whole) : run.size;
    if (size <= 0) return;
    Vector<float> const out(values.data() + (run.in_group - part.begin), static_cast<std::size_t>(size));
    if (random)
      normal_fill<float>(exec, seed, initial.first_counter + run.in_whole, initial.deviation, out);
    else if (initial.constant != 0)
      Kokkos::deep_copy(exec, out, static_cast<float>(initial.constant));
  });
}

} // namespace trainstone
