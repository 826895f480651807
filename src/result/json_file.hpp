#pragma once

// A JSON file that a user gave, read strictly. Owns the messages: each begins with the file's name, says which value is
// wrong and what would be right, and ends with advice. Promises numbers that can be added, divided and drawn: no
// absolute value exceeds 1e100, and a number that must not be negative is 0 or at least 1e-100. Does not know the
// meaning of files.

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

class JsonFile {
public:
  using Json = nlohmann::ordered_json;

  /// The lower bound of a number.
  enum class Least { any, zero, above_zero };

  /// A value of an object.
  struct Member {
    std::string key;
    std::string pointer; ///< with the key as pointers have it, whatever letters it is of
  };

  /// \param[in] advice  what every message ends with, e.g. "; `trainstone run` writes one"; may be empty
  JsonFile(std::string path, std::string advice, Json json)
      : m_path(std::move(path)), m_advice(std::move(advice)), m_json(std::move(json)) {}

  /// Reads and parses. \throws InputError if there is no such file, or it is no JSON
  static JsonFile read(std::string const& path, std::string const& advice);

  std::string const& path() const { return m_path; }

  [[noreturn]] void fail(std::string const& problem) const;
  void require(bool condition, std::string const& problem) const {
    if (!condition) fail(problem);
  }
  /// \throws InputError unless /schema_version is `version`
  void require_version(int version) const;

  // Pointers are "/curves/reduce/pieces/0". Each throws InputError if the value is missing or of another type.

  Json const& at(std::string const& pointer) const;
  /// Whether the value exists and is not null.
  bool has(std::string const& pointer) const;
  double number(std::string const& pointer) const;
  double non_negative(std::string const& pointer) const;
  double positive(std::string const& pointer) const;
  /// At least 1.
  std::int64_t count(std::string const& pointer) const;
  /// At least 0.
  std::uint64_t amount(std::string const& pointer) const;
  bool boolean(std::string const& pointer) const;
  std::string text(std::string const& pointer) const;
  std::optional<double> optional_number(std::string const& pointer) const;
  std::optional<double> optional_non_negative(std::string const& pointer) const;
  /// An array of numbers. \param[in] null  whether an element may be null, which becomes no number
  std::vector<double> numbers(std::string const& pointer, bool null, Least least = Least::any) const;
  /// An array of count()s.
  std::vector<std::int64_t> counts(std::string const& pointer) const;
  /// Of an object, in the file's order.
  std::vector<Member> members(std::string const& pointer) const;
  /// How many elements an array has; 0 if there is none.
  std::size_t length(std::string const& pointer) const;

private:
  Json const* find(std::string const& pointer) const;
  double checked(std::string const& pointer, Least least) const;

  std::string m_path;
  std::string m_advice;
  Json m_json;
};

} // namespace trainstone
