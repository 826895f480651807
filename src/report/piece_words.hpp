#pragma once

// What a piece of a part computes, in words. The words come from the description of the parts (model/part_kernels.hpp),
// so they name the kernels that run, in their order. A pure function.

#include "model/part_kernels.hpp"

#include <string>

namespace trainstone {

/// "attention backward; gradient of the input of qkvw"
/// \param[in] options  of the model that the piece belongs to
std::string piece_words(PartPiece const& piece, GptOptions const& options);

} // namespace trainstone
