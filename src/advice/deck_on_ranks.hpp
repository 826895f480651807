#pragma once

// A deck on a number of ranks, with keys set on top of it, planned by the code that plans every run. Everything here
// that asks "what if" sets keys as --set does. So an answer is a list of keys, and `estimate` accepts it. A value.

#include "deck/deck.hpp"
#include "train/plan/resolved_run.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

struct DeckOnRanks {
  std::string text; ///< of the deck
  DeckInput input;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  std::optional<Topology> topology = {}; ///< of ranks and nodes, if a search has it already

  /// The same with more keys set: "section.key=value". The last of equal keys counts.
  DeckOnRanks with(std::vector<std::string> const& keys) const;
  /// \throws InputError as parse_deck() does
  Deck deck() const { return parse_deck(text, input); }
};

/// \throws InputError if the deck cannot be read
DeckOnRanks read_deck_on_ranks(DeckInput const& input, std::int64_t ranks, std::int64_t nodes);

/// The run that is planned: of all ranks, or if workers of servers do not wait for each other of one worker and the
/// servers. \throws InputError if the keys do not fit together or to the ranks
ResolvedRun planned_run(DeckOnRanks const& asked);

/// "--set a=1 --set b=2": quoted for a shell where a value needs it.
std::string set_options(std::vector<std::string> const& keys);

} // namespace trainstone
