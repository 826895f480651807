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

/// "[2, 4, 1]"
std::string grid_text(ParallelConfig const& parallel) {
  return fmt::format("[{}, {}, {}]", parallel.tensor, parallel.features(), parallel.tensor_grid[2]);
}

/// Of ranks that share features.
Found features_problem(ParallelConfig const& parallel, GptConfig const& model) {
  char const* const key = "parallel.tensor_grid";
  auto const found = [&](std::string const& reason) {
    return problem(key, "parallel.tensor_grid = {}: {}", grid_text(parallel), reason);
  };
  if (model.channels % parallel.features() != 0)
    return found(fmt::format("{} ranks cannot share model.channels = {} features; nearest legal values of y: {}",
                             parallel.features(), model.channels,
                             nearest_divisors(model.channels, parallel.features())));
  if (parallel.reduction == ReductionMode::ordered)
    return found("sums over features depend on y, which parallel.reduction = \"ordered\" does not take; legal values: "
                 "y = 1, or parallel.reduction = \"fast\"");
  if (parallel.sequence)
    return found("parallel.sequence = true shares positions, and y > 1 features; legal values: y = 1, or "
                 "parallel.sequence = false");
  if (parallel.slices() != parallel.tensor)
    return found(fmt::format("with y > 1 a rank has one slice; legal values: y = 1, or parallel.tensor_blocks = {}",
                             parallel.tensor));
  return std::nullopt;
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

std::optional<ConfigProblem> find_grid_problem(ParallelConfig const& parallel) {
  if (!parallel.has_grid()) return std::nullopt;
  auto const [x, y, z] = parallel.tensor_grid;
  if (parallel.tensor != x)
    return problem("parallel.tensor",
                   "parallel.tensor = {} contradicts parallel.tensor_grid = [{}, {}, {}]; legal value: "
                   "{}, or leave one of them out",
                   parallel.tensor, x, y, z, x);
  bool const is_hsdp = parallel.strategy == Strategy::hsdp,
             is_third = parallel.strategy == Strategy::zero && parallel.zero_stage == 3;
  if (z > 1 && !is_hsdp && !is_third)
    return problem(
        "parallel.strategy",
        "parallel.strategy = \"{}\" contradicts parallel.tensor_grid = [{}, {}, {}], whose z ranks share the "
        "state; legal values: \"hsdp\", \"zero\" with parallel.zero_stage = 3, or z = 1",
        to_string(parallel.strategy), x, y, z);
  if (z > 1 && is_hsdp && parallel.shard_group != z)
    return problem("parallel.shard_group",
                   "parallel.shard_group = {} contradicts parallel.tensor_grid = [{}, {}, {}]; legal value: {}",
                   parallel.shard_group, x, y, z, z);
  return std::nullopt;
}

std::optional<ConfigProblem> find_tensor_ranks_problem(ParallelConfig const& parallel, GptConfig const& model,
                                                       Index ranks) {
  if (Found found = heads_problem(parallel, model)) return found;
  Index const all = ranks / parallel.pipeline;
  if (parallel.features() > 1 && all % (parallel.tensor * parallel.features()) != 0)
    return problem(
        "parallel.tensor_grid",
        "parallel.tensor_grid = {}: x y = {} does not divide the {}{}; legal values: ranks in multiples of {}",
        grid_text(parallel), parallel.tensor * parallel.features(), plural(all, "rank"),
        parallel.pipeline > 1 ? " of a stage" : "", parallel.tensor * parallel.features() * parallel.pipeline);
  Index const shards = parallel.tensor_grid[2], data = all / parallel.tensor / parallel.features();
  if (shards > 1 && parallel.strategy == Strategy::zero && shards != data && all % parallel.tensor == 0)
    return problem(
        "parallel.tensor_grid",
        "parallel.tensor_grid = {}: with parallel.strategy = \"zero\" all {} share the state; legal value of "
        "z: {}",
        grid_text(parallel), plural(data, "data rank"), data);
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
  if (parallel.features() > 1) {
    if (Found found =
            find_sharing_problem(parallel, "parallel.tensor_grid", parallel.features(), "y =", "tensor ranks"))
      return found;
    if (Found found = features_problem(parallel, model)) return found;
  }
  if (parallel.tensor > 1)
    if (Found found = find_sharing_problem(parallel, "parallel.tensor", parallel.tensor, "tensor", "tensor ranks"))
      return found;
  if (Found found = sequence_problem(parallel, model, shape.sequence)) return found;
  if (Found found = blocks_problem(parallel, model, shape.sequence)) return found;
  return row_chunks_problem(parallel, shape);
}

} // namespace trainstone
