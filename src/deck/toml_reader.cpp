#include "deck/toml_reader.hpp"

#include <toml++/toml.h>

#include <optional>
#include <type_traits>
#include <utility>

namespace trainstone::Impl {

namespace {

[[noreturn]] void fail(Origin const& origin, std::string const& path, std::string const& message) {
  throw InputError(fmt::format("{}: {}", place(origin, path), message));
}

std::string found_type(toml::node const& node) {
  switch (node.type()) {
  case toml::node_type::table: return "a section";
  case toml::node_type::array: return "a list";
  case toml::node_type::string: return "a string";
  case toml::node_type::integer: return "an integer";
  case toml::node_type::floating_point: return "a number with a fraction";
  case toml::node_type::boolean: return "true or false";
  default: return "a date or time";
  }
}

/// How the key would be written, with its default.
std::string example(Key const& key) { return fmt::format("{} = {}", key.name, to_toml(key.default_value())); }

template <class T>
std::optional<std::vector<T>> elements(toml::node const& node) {
  toml::array const* const array = node.as_array();
  if (!array) return std::nullopt;
  std::vector<T> values;
  for (toml::node const& element : *array) {
    // Integers are numbers, but numbers are not texts, nor the other way round.
    bool const fits = std::is_same_v<T, double> ? element.is_number() : element.is_string();
    if (!fits) return std::nullopt;
    values.push_back(*element.value<T>());
  }
  return values;
}

template <class T>
std::optional<DeckValue> wrapped(std::optional<T> value) {
  return value ? std::optional<DeckValue>(std::move(*value)) : std::nullopt;
}

/// A list of integers, as texts.
std::optional<DeckValue> integer_texts(toml::node const& node) {
  toml::array const* const array = node.as_array();
  if (!array || !array->is_homogeneous(toml::node_type::integer)) return std::nullopt;
  std::vector<std::string> texts;
  for (toml::node const& element : *array) texts.push_back(fmt::format("{}", *element.value<std::int64_t>()));
  return texts;
}

/// The node's value as the key's type, if it has it.
std::optional<DeckValue> typed_value(Key const& key, toml::node const& node) {
  switch (key.type) {
  case KeyType::integer: return node.is_integer() ? wrapped(node.value<std::int64_t>()) : std::nullopt;
  case KeyType::number: return node.is_number() ? wrapped(node.value<double>()) : std::nullopt;
  case KeyType::boolean: return node.is_boolean() ? wrapped(node.value<bool>()) : std::nullopt;
  case KeyType::text: return node.is_string() ? wrapped(node.value<std::string>()) : std::nullopt;
  case KeyType::quantity: {
    std::optional<std::string> const text = node.is_string() ? node.value<std::string>() : std::nullopt;
    return text ? wrapped(read_quantity(*text, key.dimension)) : std::nullopt;
  }
  case KeyType::number_list: return wrapped(elements<double>(node));
  case KeyType::text_list:
    if (key.one_will_do && node.is_string()) return std::vector{*node.value<std::string>()};
    if (std::optional<DeckValue> const texts = key.takes_integers ? integer_texts(node) : std::nullopt) return texts;
    return wrapped(elements<std::string>(node));
  }
  return std::nullopt;
}

Setting make_setting(Key const& key, toml::node const& node, Origin const& origin, std::string const& path) {
  std::optional<DeckValue> value = typed_value(key, node);
  if (!value) {
    std::string const found =
        key.type == KeyType::quantity && node.is_string() ? to_toml(*node.value<std::string>()) : found_type(node);
    fail(origin, path,
         fmt::format("{} is {}, must be {}, for example {}", key.name, found, type_name(key), example(key)));
  }
  if (std::optional<std::string> const problem = find_problem(key, *value)) fail(origin, path, *problem);
  return {&key, std::move(*value), origin};
}

[[noreturn]] void fail_unknown(std::string const& name, bool section, Origin const& origin, std::string const& path) {
  std::optional<std::string> const nearest = section ? nearest_section(name) : nearest_key(name);
  std::string const hint = nearest ? fmt::format(", did you mean \"{}\"?", *nearest) : "; --help-deck lists all keys";
  fail(origin, path, fmt::format("unknown {} \"{}\"{}", section ? "section" : "key", name, hint));
}

void read_table(toml::table const& table, std::string const& prefix, std::string const& path,
                std::vector<Setting>& settings) {
  for (auto const& [part, node] : table) {
    std::string const name = prefix + std::string(part.str());
    Origin const origin{Origin::Kind::deck, static_cast<int>(part.source().begin.line), {}};
    if (Key const* const key = find_key(name)) {
      settings.push_back(make_setting(*key, node, origin, path));
    } else if (!is_section(name)) {
      fail_unknown(name, node.is_table(), origin, path);
    } else if (toml::table const* const inner = node.as_table()) {
      read_table(*inner, name + ".", path, settings);
    } else {
      fail(origin, path, fmt::format("{} is {}, must be a section: [{}]", name, found_type(node), name));
    }
  }
}

} // namespace

std::string place(Origin const& origin, std::string const& path) {
  switch (origin.kind) {
  case Origin::Kind::deck: return fmt::format("{}:{}", path, origin.line);
  case Origin::Kind::benchmark_class: return "class " + origin.text;
  case Origin::Kind::environment: return "TRAINSTONE_SET " + origin.text;
  case Origin::Kind::command_line: return "--set " + origin.text;
  default: return path.empty() ? "deck" : path;
  }
}

std::vector<Setting> read_toml(std::string_view text, std::string const& path) {
  std::vector<Setting> settings;
  try {
    read_table(toml::parse(text), "", path, settings);
  } catch (toml::parse_error const& error) {
    throw InputError(fmt::format("{}:{}: {}", path, error.source().begin.line, error.description()));
  }
  return settings;
}

Setting read_override(std::string const& assignment, Origin::Kind kind) {
  Origin const origin{kind, 0, assignment};
  std::size_t const equals = assignment.find('=');
  if (equals == std::string::npos) fail(origin, "", "must have the form section.key=value");
  auto const trimmed = [](std::string const& text) {
    std::size_t const first = text.find_first_not_of(" \t");
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") + 1 - first);
  };
  std::string const name = trimmed(assignment.substr(0, equals));
  std::string const text = trimmed(assignment.substr(equals + 1));
  Key const* const key = find_key(name);
  if (!key && is_section(name)) fail(origin, "", fmt::format("{} is a section: set one key of it at a time", name));
  if (!key) fail_unknown(name, false, origin, "");
  bool const is_string = key->type == KeyType::text || key->type == KeyType::quantity || key->one_will_do;
  bool const bare =
      is_string && (text.empty() ||
                    std::string_view(key->one_will_do ? "\"'[" : "\"'").find(text.front()) == std::string_view::npos);
  if (bare) return make_setting(*key, toml::value<std::string>(text), origin, "");
  try {
    toml::table const table = toml::parse("value = " + text);
    if (table.size() != 1) fail(origin, "", "must be one key and one value");
    return make_setting(*key, *table.get("value"), origin, "");
  } catch (toml::parse_error const&) {
    fail(origin, "",
         fmt::format("the value is not TOML: {} must be {}, for example {}", name, type_name(*key), example(*key)));
  }
}

} // namespace trainstone::Impl
