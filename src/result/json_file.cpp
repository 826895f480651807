#include "result/json_file.hpp"

#include "core/error.hpp"
#include "core/json_text.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

namespace trainstone {

namespace {

constexpr double largest = 1e100;

/// As messages show a value: short, whatever it is.
std::string shown(JsonFile::Json const& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "an array";
  constexpr std::size_t most = 60;
  std::string const text = json_line(value, true); // of ASCII alone, so that it may be cut anywhere
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

/// A key as a part of a pointer.
std::string escaped_key(std::string const& key) {
  std::string text;
  for (char const c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

bool is_integer(JsonFile::Json const& value, int least) {
  return value.is_number_integer() && value >= least && value <= std::numeric_limits<std::int64_t>::max();
}

/// What a number must do and does not; empty: nothing.
std::string_view fault_of(JsonFile::Json const& value, JsonFile::Least least) {
  if (!value.is_number()) return "be a number";
  auto const number = value.get<double>();
  if (least == JsonFile::Least::zero && number < 0) return "not be negative";
  if (least == JsonFile::Least::above_zero && number <= 0) return "be above 0";
  if (std::abs(number) > largest) return "not exceed 1e100";
  return least != JsonFile::Least::any && number != 0 && number < 1 / largest ? "not be that small" : "";
}

} // namespace

JsonFile JsonFile::read(std::string const& path, std::string const& advice) {
  JsonFile const nothing(path, advice, {});
  std::error_code ignored;
  std::ifstream file(path);
  nothing.require(file.good() && std::filesystem::is_regular_file(path, ignored), "cannot be read");
  try {
    return {path, advice, Json::parse(file)};
  } catch (Json::exception const& error) {
    nothing.fail(fmt::format("no JSON ({})", error.what()));
  }
}

void JsonFile::fail(std::string const& problem) const {
  throw InputError(fmt::format("{}: {}{}", m_path, problem, m_advice));
}

void JsonFile::require_version(int version) const {
  Json const& found = at("/schema_version");
  require(found == version, fmt::format("schema_version {}, must be {}", shown(found), version));
}

JsonFile::Json const* JsonFile::find(std::string const& pointer) const {
  Json::json_pointer const place(pointer);
  return m_json.contains(place) ? &m_json.at(place) : nullptr;
}

JsonFile::Json const& JsonFile::at(std::string const& pointer) const {
  Json const* const found = find(pointer);
  require(found, pointer + " is missing");
  return *found;
}

bool JsonFile::has(std::string const& pointer) const {
  Json const* const found = find(pointer);
  return found && !found->is_null();
}

double JsonFile::checked(std::string const& pointer, Least least) const {
  Json const& value = at(pointer);
  std::string_view const fault = fault_of(value, least);
  require(fault.empty(), fmt::format("{} is {}, must {}", pointer, shown(value), fault));
  return value.get<double>();
}

double JsonFile::number(std::string const& pointer) const { return checked(pointer, Least::any); }

double JsonFile::non_negative(std::string const& pointer) const { return checked(pointer, Least::zero); }

double JsonFile::positive(std::string const& pointer) const { return checked(pointer, Least::above_zero); }

std::int64_t JsonFile::count(std::string const& pointer) const {
  Json const& value = at(pointer);
  require(is_integer(value, 1), fmt::format("{} is {}, must be an integer above 0", pointer, shown(value)));
  return value.get<std::int64_t>();
}

std::uint64_t JsonFile::amount(std::string const& pointer) const {
  Json const& value = at(pointer);
  require(is_integer(value, 0), fmt::format("{} is {}, must be an integer, 0 or more", pointer, shown(value)));
  return value.get<std::uint64_t>();
}

bool JsonFile::boolean(std::string const& pointer) const {
  Json const& value = at(pointer);
  require(value.is_boolean(), fmt::format("{} is {}, must be true or false", pointer, shown(value)));
  return value.get<bool>();
}

std::string JsonFile::text(std::string const& pointer) const {
  Json const& value = at(pointer);
  require(value.is_string(), fmt::format("{} is {}, must be a string", pointer, shown(value)));
  return value.get<std::string>();
}

std::optional<double> JsonFile::optional_number(std::string const& pointer) const {
  return has(pointer) ? std::optional(number(pointer)) : std::nullopt;
}

std::optional<double> JsonFile::optional_non_negative(std::string const& pointer) const {
  return has(pointer) ? std::optional(non_negative(pointer)) : std::nullopt;
}

std::vector<double> JsonFile::numbers(std::string const& pointer, bool null, Least least) const {
  require(at(pointer).is_array(), pointer + " must be an array");
  std::vector<double> values;
  for (Json const& value : at(pointer)) {
    bool const none = null && value.is_null();
    if (!none && !fault_of(value, least).empty()) checked(fmt::format("{}/{}", pointer, values.size()), least);
    values.push_back(none ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return values;
}

std::vector<std::int64_t> JsonFile::counts(std::string const& pointer) const {
  require(at(pointer).is_array(), pointer + " must be an array");
  std::vector<std::int64_t> values;
  for (Json const& value : at(pointer))
    values.push_back(is_integer(value, 1) ? value.get<std::int64_t>()
                                          : count(fmt::format("{}/{}", pointer, values.size())));
  return values;
}

std::vector<JsonFile::Member> JsonFile::members(std::string const& pointer) const {
  require(at(pointer).is_object(), pointer + " must be an object");
  std::vector<Member> found;
  for (auto const& entry : at(pointer).items())
    found.push_back({entry.key(), pointer + '/' + escaped_key(entry.key())});
  return found;
}

std::size_t JsonFile::length(std::string const& pointer) const {
  if (!has(pointer)) return 0;
  require(at(pointer).is_array(), pointer + " must be an array");
  return at(pointer).size();
}

} // namespace trainstone
