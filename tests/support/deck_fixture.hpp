#pragma once

// A small legal deck, and what reading a deck says when it is not legal.

#include "deck/deck.hpp"

#include "core/error.hpp"

#include <string>
#include <vector>

namespace trainstone::test {

/// Lines 1 to 13; whatever a test adds begins at line 14, inside [batch].
inline std::string const small_deck = "[model]\n"                       // 1
                                      "layers = 2\n"                    // 2
                                      "heads = 4\n"                     // 3
                                      "channels = 64\n"                 // 4
                                      "context = 32\n"                  // 5
                                      "vocab = 256\n"                   // 6
                                      "[data]\n"                        // 7
                                      "files = [\"data/corpus.txt\"]\n" // 8
                                      "sequence = 16\n"                 // 9
                                      "steps = 10\n"                    // 10
                                      "[batch]\n"                       // 11
                                      "micro = 2\n"                     // 12
                                      "global = 8\n";                   // 13

inline Deck read_text(std::string const& text, std::vector<std::string> const& overrides = {},
                      std::string const& environment = {}) {
  return parse_deck(text, {"inputs/small.toml", overrides, environment});
}

inline Deck read_small(std::vector<std::string> const& overrides = {}, std::string const& environment = {}) {
  return read_text(small_deck, overrides, environment);
}

/// The message of the InputError that `call` ends in; says so if there is none.
template <class Call>
std::string input_error_of(Call const& call) {
  try {
    call();
  } catch (InputError const& error) {
    return error.what();
  }
  return "no InputError";
}

inline std::string error_of(std::string const& text) {
  return input_error_of([&] { read_text(text); });
}

/// small_deck with one of its lines (from 1) replaced.
inline std::string error_with_line(int line, std::string const& replacement) {
  std::string text = small_deck;
  std::size_t begin = 0;
  for (int i = 1; i < line; ++i) begin = text.find('\n', begin) + 1;
  text.replace(begin, text.find('\n', begin) - begin, replacement);
  return error_of(text);
}

/// Of small_deck.
inline std::string error_with(std::vector<std::string> const& overrides) {
  return input_error_of([&] { read_small(overrides); });
}

inline std::string error_of_override(std::string const& assignment) {
  return input_error_of([&] { read_small({assignment}); });
}

} // namespace trainstone::test
