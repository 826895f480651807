#pragma once

// The steps of every part's passes, in order, and where a pass can be cut between them. What a step computes is the
// same wherever a pass is cut: part_pieces() of part_kernels.hpp cuts. Included by the files that make pieces.

#include "model/part_kernels.hpp"

#include <span>

namespace trainstone::Impl {

/// All steps of a pass. Of head's loss and of its backward the first `in_chunks` ones run for every chunk of rows, if
/// the loss is split.
struct PassSteps {
  std::span<PartStep const> steps;
  std::size_t in_chunks = 0;
};

/// \param[in] how  of Pass::recompute
PassSteps steps_of(Pass pass, PartKind kind, GptOptions const& options, Recompute how);

} // namespace trainstone::Impl
