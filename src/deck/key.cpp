#include "deck/key.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

std::string joined(std::vector<std::string> const& words) { return fmt::format("{}", fmt::join(words, ", ")); }

bool is_number(KeyType type) {
  return type == KeyType::integer || type == KeyType::number || type == KeyType::number_list ||
         type == KeyType::quantity;
}

/// A number in the form that the key's values have.
std::string bound_text(Key const& key, double value) {
  return key.type == KeyType::quantity ? to_string(Quantity{key.dimension, value}) : fmt::format("{}", value);
}

std::string range_text(Key const& key) {
  LegalRange const& range = key.range;
  std::string const minimum = bound_text(key, range.minimum);
  if (range.maximum == std::numeric_limits<double>::infinity()) {
    return fmt::format("{} {}", range.open_minimum ? "above" : "at least", minimum);
  }
  std::string const maximum = bound_text(key, range.maximum);
  if (range.open_maximum) return fmt::format("{} to below {}", minimum, maximum);
  return fmt::format("{}{} to {}", range.open_minimum ? "above " : "", minimum, maximum);
}

std::optional<std::string> range_problem(Key const& key, double value, std::string const& text) {
  if (key.range.contains(value)) return std::nullopt;
  return fmt::format("{} = {} is out of range, must be {}", key.name, text, legal_values(key));
}

std::optional<std::string> range_problem(Key const& key, double value) {
  return range_problem(key, value, fmt::format("{}", value));
}

std::optional<std::string> quantity_problem(Key const& key, Quantity const& quantity) {
  if (quantity.dimension == Dimension::size && quantity.value != std::floor(quantity.value)) {
    return fmt::format("{} = {} is no whole number of bytes", key.name, to_toml(quantity));
  }
  return range_problem(key, quantity.value, to_toml(quantity));
}

} // namespace

bool LegalRange::contains(double value) const {
  bool const above = open_minimum ? value > minimum : value >= minimum;
  bool const below = open_maximum ? value < maximum : value <= maximum;
  return above && below && value < std::numeric_limits<double>::infinity();
}

std::string type_name(Key const& key) {
  switch (key.type) {
  case KeyType::integer: return "an integer";
  case KeyType::number: return "a number";
  case KeyType::boolean: return "true or false";
  case KeyType::text: return "a string";
  case KeyType::quantity: return description(key.dimension);
  case KeyType::number_list: return fmt::format("a list of {} numbers", key.length);
  case KeyType::text_list:
    if (key.takes_integers) return "a string or a list of integers";
    return key.one_will_do ? "a string or a list of strings" : "a list of strings";
  }
  return {};
}

std::string legal_values(Key const& key) {
  if (!key.choices.empty()) return (key.choices.size() > 1 ? "one of " : "") + joined(key.choices);
  return is_number(key.type) ? range_text(key) : "";
}

std::optional<std::string> find_problem(Key const& key, DeckValue const& value) {
  if (auto const* integer = std::get_if<std::int64_t>(&value)) {
    return range_problem(key, static_cast<double>(*integer), fmt::format("{}", *integer));
  }
  if (auto const* number = std::get_if<double>(&value)) return range_problem(key, *number);
  if (auto const* quantity = std::get_if<Quantity>(&value)) return quantity_problem(key, *quantity);
  if (auto const* numbers = std::get_if<std::vector<double>>(&value)) {
    if (numbers->size() != key.length) {
      return fmt::format("{} has {} numbers, must be {}", key.name, numbers->size(), type_name(key));
    }
    for (double const element : *numbers) {
      if (std::optional<std::string> problem = range_problem(key, element)) return problem;
    }
  }
  auto const choice_problem = [&](std::string const& choice) -> std::optional<std::string> {
    if (key.choices.empty() || std::find(key.choices.begin(), key.choices.end(), choice) != key.choices.end())
      return std::nullopt;
    if (std::find(key.reasoned.begin(), key.reasoned.end(), choice) != key.reasoned.end()) return std::nullopt;
    return fmt::format("{} = {} is unknown, must be {}", key.name, to_toml(choice), legal_values(key));
  };
  if (value == key.default_value()) return std::nullopt; // a choice that is empty by default may also be given as empty
  if (auto const* choice = std::get_if<std::string>(&value)) return choice_problem(*choice);
  if (auto const* choices = std::get_if<std::vector<std::string>>(&value))
    for (std::string const& choice : *choices)
      if (std::optional<std::string> problem = choice_problem(choice)) return problem;
  return std::nullopt;
}

} // namespace trainstone
