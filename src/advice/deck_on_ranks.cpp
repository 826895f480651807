#include "advice/deck_on_ranks.hpp"

#include "parallel/plan/strategies.hpp"
#include "report/machine_source.hpp"
#include "train/plan/served_run.hpp"

namespace trainstone {

DeckOnRanks DeckOnRanks::with(std::vector<std::string> const& keys) const {
  DeckOnRanks changed = *this;
  changed.input.overrides.insert(changed.input.overrides.end(), keys.begin(), keys.end());
  return changed;
}

DeckOnRanks read_deck_on_ranks(DeckInput const& input, std::int64_t ranks, std::int64_t nodes) {
  return {.text = read_deck_text(input), .input = input, .ranks = ranks, .nodes = nodes};
}

ResolvedRun planned_run(DeckOnRanks const& asked) {
  RunConfig const config = resolve(asked.deck(), asked.ranks);
  ResolvedRun run =
      resolve_run(config, asked.topology ? *asked.topology : imagined_topology(config, asked.ranks, asked.nodes));
  return is_asynchronous(config.parallel) ? with_one_worker(run, 0) : run;
}

std::string set_options(std::vector<std::string> const& keys) {
  std::string text;
  for (std::string const& key : keys) {
    bool const is_plain = key.find_first_of(" \"'[]") == std::string::npos;
    text += (text.empty() ? "--set " : " --set ") + (is_plain ? key : "'" + key + "'");
  }
  return text;
}

} // namespace trainstone
