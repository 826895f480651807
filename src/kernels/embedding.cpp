#include "kernels/embedding_impl.hpp"

#include "kernels/common/instantiate.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace trainstone {

void build_token_buckets(std::span<std::int32_t const> tokens, Index vocab, std::span<std::int32_t> order,
                         std::span<std::int32_t> begin, std::span<std::int32_t> token) {
  std::size_t const rows = tokens.size();
  TRAINSTONE_REQUIRE(rows < std::numeric_limits<std::int32_t>::max(), "build_token_buckets: {} rows", rows);
  TRAINSTONE_REQUIRE(order.size() == rows && begin.size() == rows + 1 && token.size() == rows,
                     "build_token_buckets: {} tokens, but order ({}), begin ({}), token ({})", rows, order.size(),
                     begin.size(), token.size());
  for (std::size_t n = 0; n < rows; ++n)
    TRAINSTONE_REQUIRE(tokens[n] >= 0 && tokens[n] < vocab, "token {} at position {} is outside [0, {})", tokens[n], n,
                       vocab);

  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::int32_t row) { return tokens[static_cast<std::size_t>(row)]; });
  std::ranges::fill(begin, static_cast<std::int32_t>(rows));
  std::ranges::fill(token, -1);
  std::size_t bucket = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    std::int32_t const own = tokens[static_cast<std::size_t>(order[i])];
    if (i > 0 && own == token[bucket - 1]) continue;
    begin[bucket] = static_cast<std::int32_t>(i);
    token[bucket++] = own;
  }
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void embedding_forward<T>(ExecutionSpace const&, Vector<std::int32_t const>, Matrix<T const>,               \
                                     Matrix<T const>, Index, Matrix<T>);                                               \
  template void embedding_add_positions<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>, Index, Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

#define TRAINSTONE_INSTANTIATE_GRADIENT(T, Gradient)                                                                   \
  template void embedding_backward<T, Gradient>(ExecutionSpace const&, TokenBuckets const&, Matrix<T const>, Index,    \
                                                Matrix<Gradient>, Matrix<Gradient>, Write);                            \
  template void embedding_backward_tokens<T, Gradient>(ExecutionSpace const&, TokenBuckets const&, Matrix<T const>,    \
                                                       Index, Matrix<Gradient>);                                       \
  template void embedding_backward_positions<T, Gradient>(ExecutionSpace const&, Matrix<T const>, Index,               \
                                                          Matrix<Gradient>, Write);                                    \
  template void embedding_lookup<T, Gradient>(ExecutionSpace const&, Vector<std::int32_t const>, Index,                \
                                              Matrix<T const>, Write, Matrix<Gradient>);
TRAINSTONE_FOR_EACH_STORAGE_AND_GRADIENT(TRAINSTONE_INSTANTIATE_GRADIENT)

} // namespace trainstone
