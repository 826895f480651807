#pragma once

// Ways to distribute a matrix product over ranks, which one lecture lists without figures: closed forms beside the
// counts of the schedules, and what a second tensor axis of a transformer sends. Owns the closed forms; counts come
// from the plans and schedules alone, so that a closed form that is wrong shows as a difference. Pure; renders no text
// (lectures/lecture_products.hpp).
// Sources: products/plan/product.hpp; Singh and others, A 4D Hybrid Algorithm to Scale Parallel Training to Thousands
// of GPUs (AxoNN), arXiv:2305.13525.

#include "products/plan/product.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// One way to distribute one product. Messages and elements of the busiest rank, elements that a rank keeps.
struct TaughtProductRow {
  std::string arrangement; ///< "1-D, rows"
  ProductGrid grid;
  std::string messages_formula, sent_formula, kept_formula;
  double messages = 0, sent = 0, kept = 0; ///< by the closed forms
  Index counted_messages = 0, counted_sent = 0, counted_kept = 0;
};

struct TaughtProduct {
  std::string what; ///< "square"
  ProductSize asked;
  ProductSize size; ///< rounded up to multiples of the number of ranks, so that blocks and shares are equal
  double bound = 0; ///< elements that some rank sends in any product
  std::vector<TaughtProductRow> rows;
};

/// What the busiest rank sends of a square product of n^2 elements, in units of n^2, on the best legal grid.
struct TaughtShareRow {
  Rank ranks = 0;
  double line = 0, box = 0, bound = 0;
  std::optional<double> summa = {}, cannon = {}, layers = {}; ///< nothing: not possible on so many ranks
};

/// What a rank sends over both tensor axes, per block and micro-batch, in units of tokens times channels.
struct TensorGridRow {
  Rank x = 1, y = 1;
  double exact = 0, counted = 0;
  bool is_best = false; ///< of the grids of as many ranks
};

struct TaughtProducts {
  Rank ranks = 0;
  std::vector<TaughtProductRow> formulas; ///< of every kind of arrangement, also of those that need other ranks
  std::vector<TaughtProduct> products;
  std::vector<TaughtShareRow> shares;
  std::vector<std::vector<TensorGridRow>> tensor_grids; ///< by number of tensor ranks; y = 1 is the first one
};

inline constexpr Rank most_product_ranks = 512; ///< every schedule of every rank is counted

/// \param[in] ranks 1 ... most_product_ranks \throws InputError
TaughtProducts compare_taught_products(std::int64_t ranks);

} // namespace trainstone
