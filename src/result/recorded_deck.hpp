#pragma once

// The deck of a run, read back from the keys in its result file, so that what depends on the configuration can be
// planned again without the deck. Knows nothing of the rest of the file.

#include "deck/deck.hpp"
#include "result/result_file.hpp"

namespace trainstone {

/// Its path is the result's, for messages; files that it names are relative to the working directory of the run.
/// \throws InputError if the file has a key that this program does not know, or values that no deck may have
Deck recorded_deck(ResultFile const& file);

} // namespace trainstone
