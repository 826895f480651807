#pragma once

// The flags of trainstone explain. The value of a flag is kept as text until it is checked, so that a message about a
// wrong value can list the right ones.

#include "comm/schedule/partition.hpp"
#include "deck/deck.hpp"
#include "parallel/plan/strategies.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace trainstone {

/// The flags of `explain pipeline`, as typed; empty if not given.
struct PipelineArguments {
  std::string stages;        ///< a number or a range like 2:8, as the next two; empty: 4
  std::string micro_batches; ///< empty: 8
  std::string chunks;        ///< empty: 2 if the schedule has chunks, else 1
  std::string forward;       ///< a time, or one per stage; empty: 1
  std::string backward;      ///< likewise; empty: 2
  std::string head;          ///< empty: 0
  std::string message;       ///< empty: 0
  std::string slots;         ///< of a search; empty: any number
  bool search = false;
  bool json = false;
};

/// The flags as typed; empty if not given.
struct ExplainArguments {
  std::string subject;   ///< a collective, a strategy of training, "pipeline", "tensor" or "matmul"
  std::string algorithm; ///< of a collective; the schedule of a pipeline
  std::string ranks;     ///< empty: 4
  std::string nodes;     ///< empty: 1
  std::string elements;  ///< empty: two per block
  std::string root;
  std::string servers;
  std::string segment;
  std::string shard_group;                                        ///< of hsdp
  std::string schedule;                                           ///< of parameter servers; empty: not given
  std::string prefetch;                                           ///< of strategies that gather parameters; empty: 1
  std::string unit;                                               ///< of the same, in blocks; empty: 1
  std::string grid;                                               ///< of matmul; empty: auto
  std::string layers;                                             ///< of strategies; empty: 2
  std::string partition, gradient_reduction, granularity, recipe; ///< keys of a strategy's deck
  bool shared = false;
  bool sequence = false; ///< of tensor ranks: they share positions
  std::string svg_file;
  DeckInput deck;           ///< of a strategy, with a machine: its predicted timeline is shown instead
  std::string machine_file; ///< peaks.json with the parts of the deck
  std::string trace_file;   ///< of a run of the deck, whose step is drawn below the timeline; empty: none
  PipelineArguments pipeline;
};

void describe_explain(CLI::App& command, ExplainArguments& arguments);

/// One process, without MPI: prints the text and writes the picture. \throws InputError for the first flag that is
/// wrong
int explain(ExplainArguments const& arguments);

// more than this nobody reads
inline constexpr std::int64_t most_explained_ranks = 64;

/// The values of --ranks and --nodes. \throws InputError outside of the bounds
Rank ranks_of(ExplainArguments const& arguments, Index least, Index most);
std::int64_t nodes_of(ExplainArguments const& arguments, Rank ranks);

using GivenFlag = std::pair<char const*, std::string>; ///< its value; empty: it was not given

/// \throws InputError for flags that were given and mean nothing here
void require_not_given(std::vector<GivenFlag> const& flags, std::string const& subject);
/// Of collectives alone.
std::vector<GivenFlag> flags_of_collectives(ExplainArguments const& arguments);

void describe_explain_strategy(CLI::App& command, ExplainArguments& arguments);
/// explain() for a strategy.
int explain_strategy(ExplainArguments const& arguments, NamedStrategy const& strategy);

inline constexpr char const* pipeline_subject = "pipeline";
inline constexpr char const* tensor_subject = "tensor";
inline constexpr char const* product_subject = "matmul";
void describe_explain_pipeline(CLI::App& command, PipelineArguments& arguments);
/// explain() for the schedule of a pipeline; the other flags have been refused.
int explain_pipeline(ExplainArguments const& arguments);
/// explain() for a distributed product; the other flags have been refused.
int explain_product(ExplainArguments const& arguments);
/// The first flag of a pipeline that was given, with its value; empty if there is none.
std::pair<char const*, std::string> pipeline_flag_given(PipelineArguments const& arguments);

} // namespace trainstone
