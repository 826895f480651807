#include "parallel/plan/tensor_problems.hpp"

#include "core/plural.hpp"

#include <bit>
#include <string>

namespace trainstone {

namespace {

/// "1, 2 or 4": the powers of two that divide all of these.
std::string common_powers_of_two(Index heads, Index sequence, Index vocabulary) {
  std::string words;
  for (Index power = 1; heads % power == 0 && sequence % power == 0 && vocabulary % power == 0; power *= 2) {
    Index const next = 2 * power;
    bool const is_last = heads % next != 0 || sequence % next != 0 || vocabulary % next != 0;
    words += (words.empty() ? "" : is_last ? " or " : ", ") + std::to_string(power);
  }
  return words;
}

} // namespace

std::optional<ConfigProblem> find_tensor_problem(ParallelConfig const& parallel, GptConfig const& model,
                                                 Index sequence) {
  Index const blocks = parallel.tensor_blocks;
  if (blocks == 1) return std::nullopt;
  std::string const legal = common_powers_of_two(model.heads, sequence, model.padded_vocab());
  auto const refuse = [&](std::string const& reason) {
    return problem("parallel.tensor_blocks", "parallel.tensor_blocks = {} {}; legal values: {}", blocks, reason, legal);
  };
  if (!std::has_single_bit(static_cast<std::uint64_t>(blocks))) return refuse("is no power of two");
  if (model.heads % blocks != 0) return refuse("does not divide the " + plural(model.heads, "head"));
  if (model.padded_vocab() % blocks != 0)
    return refuse("does not divide the " + plural(model.padded_vocab(), "row") + " of the token table");
  if (sequence % blocks != 0) return refuse("does not divide the " + plural(sequence, "position") + " of a sample");
  return std::nullopt;
}

} // namespace trainstone
