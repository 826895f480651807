#pragma once

// Advice as text and as JSON. Owns their form.

#include "advice/advice.hpp"
#include "advice/order_check.hpp"
#include "advice/rule.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace trainstone {

/// Everything that one command has found out.
struct AdviceReport {
  std::string deck; ///< deck_label
  std::int64_t ranks = 1, nodes = 1;
  std::optional<std::uint64_t> memory;
  std::optional<RuleAdvice> rule; ///< where memory is given
  Advice advice;
  Way own;                                  ///< of the deck
  GptConfig model;                          ///< of the deck
  std::optional<std::int64_t> ranks_needed; ///< where nothing fits
  std::optional<RankedOrder> check;
};

/// The best `top` ways as a table, the keys of the best one, what is excluded, and the least change to the deck.
std::string advice_text(AdviceReport const& report, std::size_t top);

/// "estimate --advise" as a file: all ways.
std::string advice_json(AdviceReport const& report);

} // namespace trainstone
