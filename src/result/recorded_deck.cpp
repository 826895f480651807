#include "result/recorded_deck.hpp"

#include "core/error.hpp"
#include "deck/deck_checks.hpp"
#include "deck/schema.hpp"

#include <nlohmann/json.hpp>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

/// As result_json() writes it. \throws Json::exception if it is of another type
DeckValue value_of(Key const& key, Json const& json) {
  switch (key.type) {
  case KeyType::integer: return json.get<std::int64_t>();
  case KeyType::number: return json.get<double>();
  case KeyType::boolean: return json.get<bool>();
  case KeyType::text: return json.get<std::string>();
  case KeyType::quantity: return Quantity{key.dimension, json.get<double>()};
  case KeyType::number_list: return json.get<std::vector<double>>();
  case KeyType::text_list: return json.get<std::vector<std::string>>();
  }
  throw Error("a key without a type");
}

void set(Deck& deck, std::string const& name, std::string const& text) {
  Key const* const key = find_key(name);
  TRAINSTONE_REQUIRE_INPUT(key, "{}: was written by another version: this one has no key {}", deck.path, name);
  try {
    DeckValue const value = value_of(*key, Json::parse(text));
    std::optional<std::string> const problem = find_problem(*key, value);
    TRAINSTONE_REQUIRE_INPUT(!problem, "{}: {}", deck.path, *problem);
    key->set(deck.config, value);
  } catch (Json::exception const&) {
    throw InputError(fmt::format("{}: {} is {}, must be {}", deck.path, name, text, type_name(*key)));
  }
}

} // namespace

Deck recorded_deck(ResultFile const& file) {
  Deck deck{file.path, {}, {}};
  for (Key const& key : deck_keys()) deck.origins[key.name] = {};
  for (auto const& [name, text] : file.deck_values) set(deck, name, text);
  if (std::optional<ConfigProblem> const problem = find_problem(deck.config))
    fail_at(deck, problem->key, problem->message);
  return deck;
}

} // namespace trainstone
