#pragma once

// How the table of keys (key_sections.hpp) writes a key: by the field of the configuration that it fills. The type of a
// key is that of its field.

#include "deck/key.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace trainstone::Impl {

constexpr LegalRange up_to(double maximum) { return {0, maximum}; }
constexpr LegalRange positive() { return {.minimum = 0, .open_minimum = true}; }
constexpr LegalRange below(double maximum) { return {.minimum = 0, .maximum = maximum, .open_maximum = true}; }

// Bounds keep sizes in bytes and numbers of samples inside 64 bits.
constexpr double million = 1e6;
constexpr double billion = 1e9;
constexpr double trillion = 1e12;

template <class Member>
constexpr KeyType type_of() {
  if constexpr (std::is_same_v<Member, std::int64_t>) {
    return KeyType::integer;
  } else if constexpr (std::is_same_v<Member, double>) {
    return KeyType::number;
  } else if constexpr (std::is_same_v<Member, bool>) {
    return KeyType::boolean;
  } else if constexpr (std::is_same_v<Member, std::string>) {
    return KeyType::text;
  } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
    return KeyType::text_list;
  } else {
    static_assert(std::is_same_v<Member, std::array<double, 2>>);
    return KeyType::number_list;
  }
}

/// A key that fills (config.*section).*member; the member's type is the key's.
template <class Section, class Member>
Key key(char const* name, Section RunConfig::* section, Member Section::* member, std::string meaning) {
  Key result;
  result.name = name;
  result.type = type_of<Member>();
  result.meaning = std::move(meaning);
  if constexpr (std::is_same_v<Member, std::array<double, 2>>) {
    result.length = 2;
    result.get = [=](RunConfig const& config) {
      std::array<double, 2> const& values = config.*section.*member;
      return std::vector<double>(values.begin(), values.end());
    };
    result.set = [=](RunConfig& config, DeckValue const& value) {
      auto const& values = std::get<std::vector<double>>(value);
      config.*section.*member = {values.at(0), values.at(1)};
    };
  } else {
    result.get = [=](RunConfig const& config) { return config.*section.*member; };
    result.set = [=](RunConfig& config, DeckValue const& value) { config.*section.*member = std::get<Member>(value); };
  }
  return result;
}

template <class Section, class Member>
Key number(char const* name, Section RunConfig::* section, Member Section::* member, char const* unit, LegalRange range,
           std::string meaning) {
  Key result = key(name, section, member, std::move(meaning));
  result.unit = unit;
  result.range = range;
  return result;
}

/// A text with a unit that fills a number of seconds, bytes or bytes per second.
template <class Section, class Member>
Key quantity(char const* name, Section RunConfig::* section, Member Section::* member, Dimension dimension,
             LegalRange range, std::string meaning) {
  Key result = key(name, section, member, std::move(meaning));
  result.type = KeyType::quantity;
  result.dimension = dimension;
  result.range = range;
  result.get = [=](RunConfig const& config) {
    return Quantity{dimension, static_cast<double>(config.*section.*member)};
  };
  result.set = [=](RunConfig& config, DeckValue const& value) {
    config.*section.*member = static_cast<Member>(std::get<Quantity>(value).value);
  };
  return result;
}

template <class Section>
Key choice(char const* name, Section RunConfig::* section, std::string Section::* member,
           std::vector<std::string> choices, std::string meaning) {
  Key result = key(name, section, member, std::move(meaning));
  result.choices = std::move(choices);
  return result;
}

/// A choice among the values of an enum, by name.
template <class Section, class Enum>
  requires std::is_enum_v<Enum>
Key choice(char const* name, Section RunConfig::* section, Enum Section::* member,
           std::vector<std::pair<std::string, Enum>> const& table, std::string meaning) {
  Key result;
  result.name = name;
  result.type = KeyType::text;
  result.meaning = std::move(meaning);
  for (auto const& entry : table) result.choices.push_back(entry.first);
  result.get = [=](RunConfig const& config) {
    Enum const current = config.*section.*member;
    return std::find_if(table.begin(), table.end(), [=](auto const& entry) { return entry.second == current; })->first;
  };
  result.set = [=](RunConfig& config, DeckValue const& value) {
    auto const& text = std::get<std::string>(value);
    config.*section.*member =
        std::find_if(table.begin(), table.end(), [&](auto const& entry) { return entry.first == text; })->second;
  };
  return result;
}

/// Choices among the values of an enum, by name; the default is the first one.
template <class Section, class Enum>
Key choices(char const* name, Section RunConfig::* section, std::vector<Enum> Section::* member,
            std::vector<std::pair<std::string, Enum>> const& table, std::string meaning) {
  Key result;
  result.name = name;
  result.type = KeyType::text_list;
  result.one_will_do = true;
  result.meaning = std::move(meaning);
  for (auto const& entry : table) result.choices.push_back(entry.first);
  result.get = [=](RunConfig const& config) {
    std::vector<std::string> names;
    for (Enum const one : config.*section.*member)
      names.push_back(
          std::find_if(table.begin(), table.end(), [=](auto const& entry) { return entry.second == one; })->first);
    return names.empty() ? std::vector{table.front().first} : names;
  };
  result.set = [=](RunConfig& config, DeckValue const& value) {
    (config.*section.*member).clear();
    for (std::string const& text : std::get<std::vector<std::string>>(value))
      (config.*section.*member).push_back(std::find_if(table.begin(), table.end(), [&](auto const& entry) {
                                            return entry.first == text;
                                          })->second);
  };
  return result;
}

} // namespace trainstone::Impl
