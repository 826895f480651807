#pragma once

// Explanations of collectives as text: one table per round, one line per rank, one cell per block, and the messages and
// moves that led there. Also owns the words that the picture shares. Pure functions.

#include "comm/simulation/explanation.hpp"

#include <string>

namespace trainstone {

/// "all_reduce ring on 4 ranks, 1 node, 8 elements"
std::string explanation_title(Explanation const& explanation);

/// The meaning of the collective, in one sentence.
std::string meaning_of(Problem const& problem);

/// "rank 2", "rank 3, server 0", "rank 2, node 1" if there are several
std::string rank_name(Explanation const& explanation, Rank rank);

/// "block 2", "message 2", "has heard of": over a column. \param[in] place see Explanation::places
std::string place_name(Explanation const& explanation, std::size_t place);

/// Places that have elements on some rank: those worth a column.
std::vector<std::size_t> shown_places(Explanation const& explanation);

/// The text of a cell. "-": nothing; "0+2": the sum of ranks 0 and 2; "all": the sum of all contributing ranks;
/// "0..4+6": a sum of many ranks; "0|all": a block with several of these. In an all-to-all, "2>0" is rank 2's message
/// for rank 0.
std::string cell_text(Explanation const& explanation, Contents const& contents);

/// "6 rounds. The busiest rank sends 6 messages ..."
std::string counts_text(Explanation const& explanation);

std::string explanation_text(Explanation const& explanation);

} // namespace trainstone
