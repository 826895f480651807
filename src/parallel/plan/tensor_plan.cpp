#include "parallel/plan/tensor_plan.hpp"

#include "core/memory_plan.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// Rank after rank, its positions of one sample after the other. Of one sample all rows lie in this order.
Pieces pieces_of_ranks(StreamShape const& stream, Index ranks) {
  Pieces pieces;
  if (stream.rows.batch == 1) return pieces;
  Index const of_sample = stream.rows.sequence * stream.channels, of_rank = of_sample / ranks;
  for (Index rank = 0; rank < ranks; ++rank)
    for (Index sample = 0; sample < stream.rows.batch; ++sample) {
      Index const begin = sample * of_sample + rank * of_rank;
      pieces.append({begin, begin + of_rank});
    }
  return pieces;
}

/// What an exchange works in.
struct Exchanged {
  Collective collective;
  Index elements;
  std::size_t element_bytes;
  Index rows = 1; ///< of so many elements in memory; each chunk has one, else the exchange is of the first one; 0: it
                  ///< lies in the memory of another one
  Pieces pieces = {};
};

Exchanged exchanged_by(SliceExchange exchange, PartTable const& parts, Storage values, StreamShape const& stream) {
  GptOptions const& options = parts.options();
  auto const pieces_of = [&](StreamShape rows) { return pieces_of_ranks(rows, options.slices.ranks); };
  Index const loss_rows = stream.rows.rows() / options.loss_chunks, slices = options.slices.count();
  std::size_t const value_bytes = bytes_per_value(values);
  auto const over_features = [&](Index elements, Index rows = 1) {
    return Exchanged{Collective::all_reduce, elements / options.slices.blocks, value_bytes, rows};
  };
  Index const all_elements = stream.rows.rows() * stream.channels; // of all ranks
  switch (exchange) {
  case SliceExchange::sum: {
    Index const chunks = chunks_of(exchange, options);
    TRAINSTONE_REQUIRE((options.shares_positions() ? stream.rows.batch : stream.rows.rows()) % chunks == 0,
                       "{} chunks of {} x {} rows", chunks, stream.rows.batch, stream.rows.sequence);
    std::size_t const bytes = bytes_per_value(storage_of(Activation::partial, options, values));
    if (!options.shares_positions()) return {Collective::all_reduce, stream.elements(options) / chunks, bytes, chunks};
    StreamShape const chunk{{stream.rows.batch / chunks, stream.rows.sequence}, stream.channels}; // whole samples
    return {Collective::reduce_scatter, chunk.elements(options), bytes, chunks, pieces_of(chunk)};
  }
  case SliceExchange::gather:
  case SliceExchange::gather_again:
    return {Collective::all_gather, stream.elements(options), value_bytes, 1, pieces_of(stream)};
  case SliceExchange::norm_sums:
    return {Collective::all_reduce, 2 * stream.own_channels(options), sizeof(float), slices};
  case SliceExchange::loss_maximum: return {Collective::all_reduce, loss_rows, sizeof(float)};
  case SliceExchange::loss_sums: return {Collective::all_reduce, 2 * loss_rows, sizeof(double), slices};
  case SliceExchange::qkv: return over_features(3 * all_elements);
  case SliceExchange::hidden: return over_features(4 * all_elements);
  case SliceExchange::heads: return over_features(all_elements, 0);
  case SliceExchange::logits: return over_features(loss_rows * stream.vocab);
  case SliceExchange::feature_sums: return {Collective::all_reduce, 2 * stream.rows.rows(), sizeof(double)};
  }
  throw Error(fmt::format("no exchange {}", static_cast<int>(exchange)));
}

} // namespace

TensorPlan make_tensor_plan(AlgorithmChoice const& choice, StateLayout const& layout, PartTable const& parts,
                            StreamShape const& stream) {
  TensorPlan plan;
  if (!layout.mesh.shares_layers()) return plan;
  for (SliceExchange const exchange : exchanges_of(parts.stage(), parts.options())) {
    Exchanged const one = exchanged_by(exchange, parts, layout.types.parameters, stream);
    Axis const axis = is_over_features(exchange) ? Axis::features : Axis::tensor;
    plan.memory_bytes += memory_footprint(static_cast<std::uint64_t>(one.rows * one.elements) * one.element_bytes);
    plan.exchanges.emplace(
        exchange, PlannedExchange{planned_collective(choice, axis, layout.line(axis), one.collective, one.elements),
                                  one.element_bytes, one.pieces, chunks_of(exchange, parts.options())});
  }
  bool const share_memory = plan.sharers().has_value(),
             have_two_axes = layout.mesh.tensor > 1 && layout.mesh.features > 1;
  TRAINSTONE_REQUIRE_INPUT(!(share_memory && have_two_axes),
                           "comm.tensor_allreduce adds up in memory that the ranks of one axis share, and tensor ranks "
                           "have two axes; legal values: ring and others that send messages");
  return plan;
}

/// If any of them does, all lie in the memory that ranks share.
std::optional<Axis> TensorPlan::sharers() const {
  for (auto const& [exchange, planned] : exchanges)
    if (std::optional<Axis> const axis = sharers_of(planned.collective)) return axis;
  return std::nullopt;
}

} // namespace trainstone
