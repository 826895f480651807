#pragma once

// Sizes and times on command lines, the same for every flag. Sizes: a number of bytes, or with K, M, G, T (powers of
// 1024, as nccl-tests has them), B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB; in either case of letters,
// with spaces before the unit or not. Decks are stricter (core/quantity.hpp). Knows no flags.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainstone {

/// A number of bytes, at least 1. Nothing if the text is no size or if the size exceeds `most`. Parts of a byte are
/// dropped.
std::optional<std::uint64_t> read_size_argument(std::string_view text, std::uint64_t most);

/// Seconds of "90s", "55m", "55 min", "2h"; nothing if the text is no time above 0.
std::optional<double> read_time_argument(std::string_view text);

/// "no size; it must be 1 B to 1024 GiB, ...": for messages.
std::string size_argument_problem(std::uint64_t most);

} // namespace trainstone
