#pragma once

// The proof that kernels reach what they share with the other ranks of their node. Owns the memory and the check of
// every element; the pattern is that of comm/execution/message_proof.hpp. None of the executor's code takes part.

#include "comm/execution/communicator.hpp"
#include "core/views.hpp"

namespace trainstone::Impl {

/// Number of elements that are wrong on this rank. Every rank of a node writes `elements` elements for each neighbour
/// into its own part of a segment, where the neighbour reads them, and then into the neighbour's part. Collective;
/// waits.
/// \throws CollectiveError on all ranks if there is no such memory
Index wrong_in_parts(Communicator const& communicator, ExecutionSpace const& exec, Index elements);

} // namespace trainstone::Impl
