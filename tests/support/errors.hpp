#pragma once

// What a call that must fail says.

#include "core/error.hpp"

#include <string>

namespace trainstone::test {

/// The message of the `Thrown` that `call` ends in; says so if there is none.
template <class Thrown = Error, class Call>
std::string error_of(Call const& call) {
  try {
    call();
  } catch (Thrown const& error) {
    return error.what();
  }
  return "nothing was thrown";
}

} // namespace trainstone::test
