#pragma once

// The flags of trainstone explain. The value of a flag is kept as text until it is checked, so that a message about a
// wrong value can list the right ones.

#include "deck/deck.hpp"

#include <string>

namespace CLI {
class App;
}

namespace trainstone {

/// The flags as typed; empty if not given.
struct ExplainArguments {
  std::string subject;   ///< a collective, or a strategy of training
  std::string algorithm; ///< of a collective
  std::string ranks = "4";
  std::string nodes = "1";
  std::string elements; ///< empty: two per block
  std::string root;
  std::string servers;
  std::string segment;
  std::string shard_group; ///< of hsdp
  std::string prefetch;    ///< of strategies that gather parameters; empty: 1
  bool shared = false;
  std::string svg_file;
  DeckInput deck;           ///< of a strategy, with a machine: its predicted timeline is shown instead
  std::string machine_file; ///< peaks.json with the parts of the deck
  std::string trace_file;   ///< of a run of the deck, laid over the timeline; empty: none
};

void describe_explain(CLI::App& command, ExplainArguments& arguments);

/// One process, without MPI: prints the text and writes the picture. \throws InputError for the first flag that is
/// wrong
int explain(ExplainArguments const& arguments);

} // namespace trainstone
