#pragma once

// Lets Catch2 print counted and predicted traffic when they differ.

#include "comm/schedule/counters.hpp"

#include <catch2/catch_tostring.hpp>

template <>
struct Catch::StringMaker<trainstone::Traffic> {
  static std::string convert(trainstone::Traffic const& traffic) { return to_string(traffic); }
};
