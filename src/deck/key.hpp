#pragma once

// One key of a deck: its name, its meaning, its legal values, and the field of the configuration that it fills. Also
// writes legal values for messages. Knows neither the table of keys nor how decks are read.

#include "deck/deck_value.hpp"
#include "train/plan/run_config.hpp"

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

enum class KeyType { integer, number, boolean, text, quantity, number_list, text_list };

/// Legal numbers; the bounds belong to it unless they are marked open.
struct LegalRange {
  double minimum = 0;
  double maximum = std::numeric_limits<double>::infinity();
  bool open_minimum = false;
  bool open_maximum = false;
  bool contains(double value) const;
};

struct Key {
  std::string name; ///< "batch.micro"
  KeyType type = KeyType::integer;
  std::string unit;                      ///< of numbers; empty = none
  Dimension dimension = Dimension::time; ///< of quantities
  LegalRange range;                      ///< of numbers, of each number of a list, and of quantities in SI units
  std::vector<std::string> choices;      ///< of texts, and of each text of a list; empty = any text
  std::vector<std::string> reasoned;     ///< texts that a check between keys refuses, with the reason; not listed
  std::size_t length = 0;                ///< of lists; 0 = any
  bool one_will_do = false;              ///< a list of one element may be given as the element
  bool takes_integers = false;           ///< the elements of a list of texts may be given as whole numbers
  std::string meaning;
  std::function<DeckValue(RunConfig const&)> get;
  std::function<void(RunConfig&, DeckValue const&)> set;

  /// "batch" of "batch.micro", "faults.nan" of "faults.nan.step", nothing of "class".
  std::string section() const {
    std::size_t const dot = name.rfind('.');
    return dot == std::string::npos ? std::string() : name.substr(0, dot);
  }
  /// "micro" of "batch.micro".
  std::string last_part() const { return name.substr(name.rfind('.') + 1); }
  DeckValue default_value() const { return get(RunConfig{}); }
};

/// "an integer", "a list of 2 numbers": for messages and help.
std::string type_name(Key const& key);

/// "0 to 1048576", "above 0", "one of constant, cosine"; empty where everything is legal.
std::string legal_values(Key const& key);

/// The problem of a value of the key's type, if there is one.
std::optional<std::string> find_problem(Key const& key, DeckValue const& value);

} // namespace trainstone
