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
  ModelStage const& stage = m_activations.places().stage();
  TRAINSTONE_REQUIRE(stage == table.stage() || stage == ModelStage::nothing(),
                     "parameters are of a stage of {} blocks, activations of another one of {}",
                     table.stage().blocks.size(), m_activations.places().stage().blocks.size());
}

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

/// Of what is added up here first, the sum lies in the first row.
ExchangedVector Gpt::exchanged(SliceExchange exchange) const {
  if (exchange == SliceExchange::loss_sums) {
    Matrix<double> const all = m_activations.doubles(Activation::loss_sums);
    return Vector<double>(all.data(), all.extent(1));
  }
  PlacedActivation const placed = exchanged_activation(exchange, m_options, storage());
  if (exchange == SliceExchange::feature_sums) {
    Matrix<double> const all = m_activations.doubles(placed.what);
    return Vector<double>(all.data(), all.size());
  }
  StoredMatrix const all = m_activations.matrix(placed.what, placed.block);
  return exchange == SliceExchange::norm_sums ? all.flat().part(0, all.columns) : all.flat();
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

/// Of the head's backward, all chunks of rows but the first one add to the gradient of the token table.
void Gpt::run(Pass pass, Impl::LaunchedPart part, std::optional<Index> piece) const {
  std::vector<PartPiece> const all =
      part_pieces(pass, part.part.kind, m_options, m_options.recompute_of(std::max<Index>(0, part.part.block)));
  std::span<PartPiece const> pieces = all;
  if (piece) pieces = pieces.subspan(static_cast<std::size_t>(*piece), 1);
  Write const write = part.write;
  with_storage(m_activations.storage(), [&]<class T>() {
    for (PartPiece const& one : pieces) {
      part.chunk = one.chunk;
      part.row_chunk = one.row_chunk;
      part.write = one.chunk.value_or(0) > 0 ? Write::add : write;
      Impl::LaunchedKernels<T> kernels(part);
      one.describe(kernels);
    }
  });
}

void Gpt::forward(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
                  std::optional<Index> piece, ActivationBuffers const& buffers) {
  TimedRegion const region([&] { return "trainstone::model::forward " + to_string(part); });
  Impl::LaunchedPart launched_part = launched(exec, part, batch, buffers);
  launched_part.parameters = parameters;
  run(Pass::forward, launched_part, piece);
}

void Gpt::loss(ExecutionSpace const& exec, MicroBatch const& batch, LossMode mode, ConstStoredVector parameters,
               std::optional<Index> piece, ActivationBuffers const& buffers) {
  TRAINSTONE_REQUIRE(m_table->stage().head, "a stage without head has no loss");
  Impl::LaunchedPart launched_part = launched(exec, {PartKind::head}, batch, buffers);
  launched_part.mode = mode;
  launched_part.parameters = parameters;
  run(Pass::loss, launched_part, piece);
}

void Gpt::recompute(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
                    std::optional<Index> piece, ActivationBuffers const& buffers) {
  TimedRegion const region([&] { return "trainstone::model::recompute " + to_string(part); });
  Impl::LaunchedPart launched_part = launched(exec, part, batch, buffers);
  launched_part.parameters = parameters;
  run(Pass::recompute, launched_part, piece);
}

void Gpt::backward(ExecutionSpace const& exec, Part part, MicroBatch const& batch, ConstStoredVector parameters,
                   GradientTarget const& target, std::optional<Index> piece, ActivationBuffers const& buffers) {
  TimedRegion const region([&] { return "trainstone::model::backward " + to_string(part); });
  Impl::LaunchedPart launched_part = launched(exec, part, batch, buffers);
  launched_part.parameters = parameters;
  launched_part.gradients = target.gradients;
  launched_part.looked_up = target.looked_up;
  launched_part.write = target.write;
  run(Pass::backward, launched_part, piece);
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
