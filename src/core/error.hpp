#pragma once

// Errors. Owns the exit codes of the program, the exception types and the checking macro.
// Promises: every message carries values; internal errors also carry file:line. Does not print or abort:
// main() catches, prints the rank and ends all ranks with the documented exit code.

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace trainstone {

/// What the program returns to the shell (README, "Exit codes").
enum class ExitCode : int {
  valid = 0,
  usage = 64,               ///< deck, file or command-line error, found before any large allocation
  verification_failed = 65, ///< ran, but a verification failed
  does_not_fit = 69,        ///< predicted not to fit into the memory, or needs memory that devices do not share
  internal = 70,            ///< internal error or non-finite loss
  stopped = 75,             ///< stopped by a signal or --max-time, with a checkpoint: to be started again
};

/// Any error that ends the program; `code()` is what the shell sees.
class Error : public std::runtime_error {
public:
  explicit Error(std::string const& message, ExitCode code = ExitCode::internal)
      : std::runtime_error(message), m_code(code) {}
  ExitCode code() const { return m_code; }

private:
  ExitCode m_code;
};

/// The user's deck, files or command line are wrong. The message says what, where, and what would be right.
class InputError : public Error {
public:
  explicit InputError(std::string const& message) : Error(message, ExitCode::usage) {}
};

/// An error that every rank throws at the same point with the same message: one rank prints it, and all end in order.
/// Any other error ends the other ranks by force.
class CollectiveError : public Error {
public:
  using Error::Error;
};

namespace Impl {
[[noreturn]] void fail_requirement(char const* file, int line, char const* condition, std::string const& message);
}

} // namespace trainstone

/// A condition that holds unless the program itself is wrong; always on. Message in fmt syntax, with values.
#define TRAINSTONE_REQUIRE(condition, ...)                                                                             \
  do {                                                                                                                 \
    if (!(condition))                                                                                                  \
      ::trainstone::Impl::fail_requirement(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__));                \
  } while (false)

/// A condition on what the user gave (deck, file, flag): throws InputError without file:line of ours.
#define TRAINSTONE_REQUIRE_INPUT(condition, ...)                                                                       \
  do {                                                                                                                 \
    if (!(condition)) throw ::trainstone::InputError(::fmt::format(__VA_ARGS__));                                      \
  } while (false)
