#pragma once

// Decks: the user's TOML file, TRAINSTONE_SET and --set, read strictly into a RunConfig. Owns reading, precedence
// (defaults < class < preset < deck < TRAINSTONE_SET < --set), the checks between keys, the place every value came
// from, the resolved text and its hashes. Every error is an InputError that names file and line (or the override) and
// what would be right. The keys are rows of files that key_sections.hpp names. Does not open data or model files.

#include "deck/deck_value.hpp"
#include "train/plan/run_config.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone {

struct Key;

/// The input of the user.
struct DeckInput {
  std::string path;                   ///< of the deck; empty = none: defaults and overrides only
  std::vector<std::string> overrides; ///< of --set, in order: "section.key=value"
  std::string environment;            ///< of TRAINSTONE_SET: the same, separated by semicolons
};

/// The origin of a value.
struct Origin {
  enum class Kind { standard, benchmark_class, preset, deck, environment, command_line, derived };
  Kind kind = Kind::standard;
  int line = 0;     ///< of the deck
  std::string text; ///< of the override, or the name of the class, the preset, or the key that a value follows from
};

/// "default", "class tiny", "preset gpt2", "deck:12", "environment", "command line" or "derived".
std::string to_string(Origin const& origin);

/// A deck that was read: every key has a legal value of its own, and all keys fit together as far as that does not
/// depend on the number of ranks.
struct Deck {
  std::string path;                      ///< as given
  RunConfig config;                      ///< as written: relative paths, and up to one of the three batch numbers 0
  std::map<std::string, Origin> origins; ///< of every key
};

/// The text of the deck at input.path; empty if there is no path. \throws InputError if it cannot be read
std::string read_deck_text(DeckInput const& input);

/// Reads input.path and applies the overrides.
Deck read_deck(DeckInput const& input);

/// As above, from the text of the deck; input.path only names it.
Deck parse_deck(std::string_view text, DeckInput const& input);

/// The configuration of a run: all three batch numbers, and data and model files relative to the working directory
/// (in a deck they are relative to the deck's folder; model.save is relative to the working directory as it is).
/// \throws InputError if the batch does not divide, comm.expected_ranks is another number, or a step is too large to
///         be counted
RunConfig resolve(Deck const& deck, std::int64_t ranks);

/// The steps that the figure of merit is taken from: first (from 1) to last.
struct MeasuredWindow {
  std::int64_t first = 1;
  std::int64_t last = 0;
  bool empty() const { return last < first; }
};

/// Checks all keys that count in steps against the length of the training, known once epochs are counted in steps.
/// \param[in] completed  steps before a restart: the warm-up begins again after them, and may leave nothing to measure
/// \throws InputError if one exceeds it, or if no step of a whole training is left to measure
MeasuredWindow measured_window(Deck const& deck, std::int64_t steps, std::int64_t completed = 0);

/// Throws InputError about a key, with the place it came from: for checks that need more than the deck.
[[noreturn]] void fail_at(Deck const& deck, std::string const& key, std::string const& message);

/// Every key with type, unit, default, range and meaning (--help-deck).
std::string help_deck();

/// The resolved deck as TOML, each value with its origin in a comment (--print-deck). Read from the same folder it
/// gives the same configuration.
std::string print_deck(Deck const& deck);

/// 16 hexadecimal digits: XXH3 of all resolved values (not of comments, order or spelling).
std::string deck_hash(Deck const& deck);

/// The keys that a loss curve depends on: keys of model, data, length, global batch, precision and optimizer. Keys
/// about the way of computing are left out: attention, masks, parallel, comm, kernels, bench and the micro-batch. Files
/// count by data.xxhash if it is given.
std::vector<Key const*> loss_curve_keys(RunConfig const& config);

/// The same keys with their values, in TOML. Where workers of servers train apart: also what a planned order of their
/// pushes follows from.
std::vector<std::pair<std::string, std::string>> keys_of_loss_curve(Deck const& deck, std::int64_t ranks);

/// 16 hexadecimal digits: XXH3 of keys_of_loss_curve().
std::string golden_key(Deck const& deck, std::int64_t ranks);

/// The golden key of this deck in fp32, if the deck stores bf16. A training in fp16 may skip steps, so it follows no
/// curve of fp32.
std::optional<std::string> golden_key_in_fp32(Deck deck, std::int64_t ranks);

/// "quickstart.toml#9f3e +1 override": file name, first digits of the hash, number of overridden keys.
std::string deck_label(Deck const& deck);

/// One resolved key, for the result file.
struct Parameter {
  std::string key;
  std::string unit;
  DeckValue value;
  std::string origin;
};

/// All keys in the order of --help-deck, with the resolved values of a run on `ranks` ranks.
std::vector<Parameter> resolved_parameters(Deck const& deck, std::int64_t ranks);

} // namespace trainstone
