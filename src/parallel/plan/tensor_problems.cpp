#include "parallel/plan/tensor_problems.hpp"

#include "core/plural.hpp"
#include "parallel/plan/parallel_problems.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <vector>

namespace trainstone {

namespace {

using Found = std::optional<ConfigProblem>;

bool is_power_of_two(Index value) { return std::has_single_bit(static_cast<std::uint64_t>(value)); }

/// "1, 2 or 4": the numbers up to `most` that are legal.
std::string legal_values(Index most, std::function<bool(Index)> const& is_legal) {
  std::vector<std::string> all;
  for (Index value = 1; value <= most; ++value)
    if (is_legal(value)) all.push_back(std::to_string(value));
  std::string words;
  for (std::size_t i = 0; i < all.size(); ++i) words += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + all[i];
  return words;
}

/// Numbers of tensor ranks.
std::function<bool(Index)> legal_ranks(ParallelConfig const& parallel, GptConfig const& model) {
  bool const ordered = parallel.reduction == ReductionMode::ordered;
  return [=](Index ranks) { return model.heads % ranks == 0 && (!ordered || is_power_of_two(ranks)); };
}

Found heads_problem(ParallelConfig const& parallel, GptConfig const& model) {
  auto const is_legal = legal_ranks(parallel, model);
  if (is_legal(parallel.tensor)) return std::nullopt;
  return problem("parallel.tensor", "parallel.tensor = {} {}; legal values: {}", parallel.tensor,
                 model.heads % parallel.tensor == 0 ? "is no power of two, which parallel.reduction = \"ordered\" needs"
                                                    : "does not divide the " + plural(model.heads, "head"),
                 legal_values(model.heads, is_legal));
}

Found sequence_problem(ParallelConfig const& parallel, GptConfig const& model, Index sequence) {
  auto const is_legal = [&, divides_heads = legal_ranks(parallel, model)](Index ranks) {
    return ranks > 1 && divides_heads(ranks) && sequence % ranks == 0;
  };
  if (!parallel.sequence || is_legal(parallel.tensor)) return std::nullopt;
  std::string const legal = legal_values(model.heads, is_legal),
                    reason = parallel.tensor == 1 ? "needs several tensor ranks; parallel.tensor = 1"
                                                  : fmt::format("needs a parallel.tensor that divides the {} of a "
                                                                "sample; parallel.tensor = {}",
                                                                plural(sequence, "position"), parallel.tensor);
  return problem("parallel.sequence", "parallel.sequence = true {}; legal values: parallel.sequence = false{}", reason,
                 legal.empty() ? "" : ", or parallel.tensor = " + legal);
}

Found blocks_problem(ParallelConfig const& parallel, GptConfig const& model, Index sequence) {
  Index const blocks = parallel.slices(), ranks = parallel.tensor;
  char const* const key = parallel.tensor_blocks > 0 ? "parallel.tensor_blocks" : "parallel.tensor";
  bool const ordered = parallel.reduction == ReductionMode::ordered;
  auto const is_whole = [&](Index value) { return value == ranks && !ordered; }; // one slice per rank: any number
  auto const is_legal = [&](Index value) {
    return value % ranks == 0 && model.heads % value == 0 &&
           (is_whole(value) || (is_power_of_two(value) && sequence % value == 0));
  };
  if (is_legal(blocks)) return std::nullopt;
  std::string const reason = blocks % ranks != 0        ? "is no multiple of parallel.tensor = " + std::to_string(ranks)
                             : !is_power_of_two(blocks) ? "is no power of two"
                             : model.heads % blocks != 0
                                 ? "does not divide the " + plural(model.heads, "head")
                                 : "does not divide the " + plural(sequence, "position") + " of a sample";
  std::string const legal = legal_values(model.heads, is_legal);
  return problem(key, "parallel.tensor_blocks = {}{} {}; {}", blocks,
                 parallel.tensor_blocks > 0 ? "" : ", a slice for each tensor rank,", reason,
                 legal.empty() ? fmt::format("no number of slices is legal with parallel.tensor = {}", ranks)
                               : "legal values: " + legal);
}

/// A chunk has whole samples if ranks share positions: of each sample a rank has some.
Found row_chunks_problem(ParallelConfig const& parallel, MicroBatchShape shape) {
  Index const parts = parallel.sequence ? shape.batch : shape.rows(), chunks = parallel.tensor_row_chunks;
  if (parts % chunks == 0) return std::nullopt;
  return problem("parallel.tensor_row_chunks",
                 "parallel.tensor_row_chunks = {} does not divide the {} of a micro-batch; nearest legal values: {}",
                 chunks, plural(parts, parallel.sequence ? "sample" : "row"), nearest_divisors(parts, chunks));
}

} // namespace

std::optional<ConfigProblem> find_tensor_ranks_problem(ParallelConfig const& parallel, GptConfig const& model,
                                                       Index ranks) {
  if (Found found = heads_problem(parallel, model)) return found;
  Index const all = ranks / parallel.pipeline;
  if (all % parallel.tensor == 0) return std::nullopt;
  auto const is_legal = [&, divides_heads = legal_ranks(parallel, model)](Index tensor) {
    return divides_heads(tensor) && all % tensor == 0;
  };
  return problem("parallel.tensor",
                 "parallel.tensor = {} does not divide the {}{}; legal values: {}, or ranks in multiples of {}",
                 parallel.tensor, plural(all, "rank"), parallel.pipeline > 1 ? " of a stage" : "",
                 legal_values(std::min(all, model.heads), is_legal), parallel.tensor * parallel.pipeline);
}

std::optional<ConfigProblem> find_tensor_problem(ParallelConfig const& parallel, GptConfig const& model,
                                                 MicroBatchShape shape) {
  if (parallel.tensor > 1)
    if (Found found = find_sharing_problem(parallel, "parallel.tensor", parallel.tensor, "tensor", "tensor ranks"))
      return found;
  if (Found found = sequence_problem(parallel, model, shape.sequence)) return found;
  if (Found found = blocks_problem(parallel, model, shape.sequence)) return found;
  return row_chunks_problem(parallel, shape);
}

} // namespace trainstone
