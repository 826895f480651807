#include "report/json_file.hpp"

#include "core/error.hpp"

#include <filesystem>
#include <fstream>
#include <limits>

namespace trainstone {

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
  require(found == version, fmt::format("schema_version {}, must be {}", found.dump(), version));
}

JsonFile::Json const& JsonFile::at(std::string const& pointer) const {
  Json::json_pointer const place(pointer);
  require(m_json.contains(place), pointer + " is missing");
  return m_json.at(place);
}

bool JsonFile::has(std::string const& pointer) const {
  Json::json_pointer const place(pointer);
  return m_json.contains(place) && !m_json.at(place).is_null();
}

double JsonFile::number(std::string const& pointer) const {
  Json const& value = at(pointer);
  require(value.is_number(), fmt::format("{} is {}, must be a number", pointer, value.dump()));
  return value.get<double>();
}

double JsonFile::non_negative(std::string const& pointer) const {
  double const value = number(pointer);
  require(value >= 0, fmt::format("{} is {}, must not be negative", pointer, value));
  return value;
}

double JsonFile::positive(std::string const& pointer) const {
  double const value = number(pointer);
  require(value > 0, fmt::format("{} is {}, must be above 0", pointer, value));
  return value;
}

std::int64_t JsonFile::count(std::string const& pointer) const {
  Json const& value = at(pointer);
  require(value.is_number_integer() && value.get<std::int64_t>() >= 1,
          fmt::format("{} is {}, must be an integer above 0", pointer, value.dump()));
  return value.get<std::int64_t>();
}

std::uint64_t JsonFile::amount(std::string const& pointer) const {
  Json const& value = at(pointer);
  require(value.is_number_integer() && value >= 0,
          fmt::format("{} is {}, must be an integer, 0 or more", pointer, value.dump()));
  return value.get<std::uint64_t>();
}

bool JsonFile::boolean(std::string const& pointer) const {
  Json const& value = at(pointer);
  require(value.is_boolean(), fmt::format("{} is {}, must be true or false", pointer, value.dump()));
  return value.get<bool>();
}

std::string JsonFile::text(std::string const& pointer) const {
  Json const& value = at(pointer);
  require(value.is_string(), fmt::format("{} is {}, must be a string", pointer, value.dump()));
  return value.get<std::string>();
}

std::optional<double> JsonFile::optional_number(std::string const& pointer) const {
  return has(pointer) ? std::optional(number(pointer)) : std::nullopt;
}

std::optional<double> JsonFile::optional_non_negative(std::string const& pointer) const {
  return has(pointer) ? std::optional(non_negative(pointer)) : std::nullopt;
}

std::vector<double> JsonFile::numbers(std::string const& pointer, bool null) const {
  Json const& array = at(pointer);
  require(array.is_array(), pointer + " must be an array");
  std::vector<double> values;
  values.reserve(array.size());
  for (Json const& value : array) {
    require(value.is_number() || (null && value.is_null()),
            fmt::format("{}/{} is {}, must be a number", pointer, values.size(), value.dump()));
    values.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return values;
}

std::size_t JsonFile::length(std::string const& pointer) const {
  if (!has(pointer)) return 0;
  require(at(pointer).is_array(), pointer + " must be an array");
  return at(pointer).size();
}

} // namespace trainstone
