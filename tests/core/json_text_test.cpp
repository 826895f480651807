#include "core/json_text.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

namespace {

struct Case {
  std::string given, expected;
};

/// Latin-1, a cut character, one that is longer than it must be, a surrogate, and a byte that begins none.
std::vector<Case> const cases{{"mod\xe8le.toml", "mod\ufffdle.toml"},
                              {"caf\xc3", "caf\ufffd"},
                              {"\xc0\xaf", "\ufffd\ufffd"},
                              {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
                              {"a\xff", "a\ufffd"},
                              {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\u00e9 \u20ac \U0001f600"},
                              {std::string("\0\x1f\"\\", 4), std::string("\0\x1f\"\\", 4)}};

} // namespace

TEST_CASE("bytes that are no UTF-8 are replaced in every form of JSON, in keys and values", "[json]") {
  for (auto const& [given, expected] : cases) {
    nlohmann::ordered_json const value{{given, {given, 1}}};
    nlohmann::ordered_json const read{{expected, {expected, 1}}};
    for (std::string const& text : {json_text(value), json_line(value), json_line(value, true)}) {
      CAPTURE(text);
      CHECK(nlohmann::ordered_json::parse(text) == read);
    }
    CHECK(utf8_text(given) == expected);
    CHECK(utf8_text(expected) == expected);
  }
}

TEST_CASE("a file of JSON is indented and ends its last line, a message is one line", "[json]") {
  nlohmann::json const value{{"a", {1, "\u00e9"}}};
  CHECK(json_text(value) == "{\n \"a\": [\n  1,\n  \"\u00e9\"\n ]\n}\n");
  CHECK(json_line(value) == "{\"a\":[1,\"\u00e9\"]}");
  CHECK(json_line(value, true) == R"({"a":[1,"\u00e9"]})");
}
