#include "model/part_kernels.hpp"

#include "model/part_steps.hpp"

namespace trainstone {

namespace {

bool cuts(PassCut where, GptOptions const& options) {
  switch (where) {
  case PassCut::never: return false;
  case PassCut::if_shared: return options.slices.are_shared();
  case PassCut::if_positions_shared: return options.shares_positions();
  case PassCut::if_features_shared: return options.slices.cut_features();
  case PassCut::if_rows_shared: return options.shares_positions() || options.slices.cut_features();
  case PassCut::always: return true;
  }
  return true;
}

/// A step in chunks of rows is a piece for every chunk.
void append(std::vector<PartPiece>& pieces, std::span<PartStep const> steps, GptOptions const& options,
            std::optional<Index> chunk) {
  bool is_open = false; // whether a step may join the last piece
  for (PartStep const& step : steps) {
    std::span<PartStep const> const alone(&step, 1);
    if (step.rows == StepRows::in_chunks && options.chunks_rows()) {
      for (Index rows = 0; rows < options.row_chunks; ++rows) pieces.push_back({alone, chunk, rows});
      is_open = false;
    } else if (is_open && !cuts(step.cut_before, options)) {
      PartPiece& last = pieces.back();
      last.steps = {last.steps.data(), last.steps.size() + 1};
    } else {
      pieces.push_back({alone, chunk});
      is_open = true;
    }
  }
}

} // namespace

std::vector<PartPiece> part_pieces(Pass pass, PartKind kind, GptOptions const& options, Recompute how) {
  auto const [steps, in_chunks] = Impl::steps_of(pass, kind, options, how);
  std::vector<PartPiece> pieces;
  if (!options.splits_loss() || in_chunks == 0) {
    append(pieces, steps, options, std::nullopt);
    return pieces;
  }
  for (Index chunk = 0; chunk < options.loss_chunks; ++chunk) append(pieces, steps.first(in_chunks), options, chunk);
  append(pieces, steps.subspan(in_chunks), options, std::nullopt);
  return pieces;
}

} // namespace trainstone
