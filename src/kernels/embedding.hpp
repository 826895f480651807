#pragma once

// Embedding: token table plus position table, and the gradient of both. Owns the sorting of rows by token that makes
// the gradient of the token table a sum in a fixed order, without atomics. Does not check tokens against the
// vocabulary on the device: build_token_buckets does so on the host.
// Source: Language Models are Unsupervised Multitask Learners (GPT-2), learned positions.

#include "core/views.hpp"
#include "core/write.hpp"

#include <cstdint>
#include <span>

namespace trainstone {

/// The N rows of a micro-batch sorted by token. Bucket j holds the rows order[begin[j]] .. order[begin[j + 1] - 1],
/// ascending, all of token[j]. There is room for N buckets; unused ones are empty, at the end, with token -1.
struct TokenBuckets {
  Vector<std::int32_t const> order; ///< (N)
  Vector<std::int32_t const> begin; ///< (N + 1)
  Vector<std::int32_t const> token; ///< (N)
  bool operator==(TokenBuckets const&) const = default;
};

/// Fills the three arrays of TokenBuckets on the host.
/// \param[in]  tokens (N)                    \param[in] vocab: every token must be in [0, vocab)
/// \param[out] order (N), begin (N + 1), token (N)   overwritten
/// \throws Error   if a token is outside the vocabulary (message names its position) or an extent differs
void build_token_buckets(std::span<std::int32_t const> tokens, Index vocab, std::span<std::int32_t> order,
                         std::span<std::int32_t> begin, std::span<std::int32_t> token);

/// out = wte[token] + wpe[position], per row; row n is at position n mod sequence.
///                                                                      reference: reference::embedding_forward
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  tokens (N)  every one within wte's rows (not checked here)
/// \param[in]  wte (Vp, C), wpe (S, C)       S >= sequence
/// \param[out] out (N, C)  overwritten       \param[in] sequence   N is a multiple of it
/// \throws Error           if extents differ (message names both shapes)
/// Work: N C FLOP; 3 N C sizeof(T) + 4 N bytes.
template <class T>
void embedding_forward(ExecutionSpace const& exec, Vector<std::int32_t const> tokens, Matrix<T const> wte,
                       Matrix<T const> wpe, Index sequence, Matrix<T> out);

/// Of a slice of the token table: out = its row of the token + 0. Rows of other slices' tokens become 0, or stay, so
/// that the slices of a rank look up into one matrix.            reference: reference::embedding_forward without
/// positions
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  tokens (N)  \param[in] slice (S, C)   rows [first, first + S) of the token table
/// \param[out] out (N, C)  rows of the slice's tokens are written; the other ones become 0 with Write::overwrite, and
///                         stay with Write::add
/// \throws Error           if extents differ (message names both shapes)
/// Work: N C FLOP; 2 N C sizeof(T) + 4 N bytes.
template <class T, class Out>
void embedding_lookup(ExecutionSpace const& exec, Vector<std::int32_t const> tokens, Index first, Matrix<T const> slice,
                      Write others, Matrix<Out> out);

/// out = looked_up + wpe[position], per row: embedding_forward behind embedding_lookup.
///                                                                      reference: reference::embedding_forward
/// \param[in]  exec        work is enqueued here; returns without fencing
/// \param[in]  looked_up (N, C)               \param[in] wpe (S, C)     S >= sequence
/// \param[out] out (N, C)  overwritten; may alias looked_up             \param[in] sequence   N is a multiple of it
/// \throws Error           if extents differ (message names both shapes)
/// Work: N C FLOP; 3 N C sizeof(T) bytes.
template <class T>
void embedding_add_positions(ExecutionSpace const& exec, Matrix<T const> looked_up, Matrix<T const> wpe, Index sequence,
                             Matrix<T> out);

/// d_wte[token] += the sum of d_out over the token's rows; d_wpe[position] = or += the sum over the micro-batch.
///                                                                      reference: reference::embedding_backward
/// Both sums run over ascending rows: the same bits in every run.
/// \param[in]     exec            work is enqueued here; returns without fencing
/// \param[in]     buckets         the micro-batch's rows sorted by token
/// \param[in]     d_out (N, C)    \param[in] sequence   N is a multiple of it
/// \param[in,out] d_wte (Vp, C)   added to: the head's part is already there
/// \param[out]    d_wpe (S, C)    wpe_mode; on overwrite rows >= sequence become 0
/// \throws Error                  if extents differ (message names both shapes)
/// Work: 2 N C FLOP; 2 N C sizeof(T) + (2 D C + S C) sizeof(Gradient) bytes (D different tokens, taken as N).
template <class T, class Gradient>
void embedding_backward(ExecutionSpace const& exec, TokenBuckets const& buckets, Matrix<T const> d_out, Index sequence,
                        Matrix<Gradient> d_wte, Matrix<Gradient> d_wpe, Write wpe_mode);

/// The first half of embedding_backward, for a slice of the token table: rows [first, first + S).
/// \param[in,out] d_slice (S, C)   added to
/// Work: N C FLOP; N C sizeof(T) + 2 D C sizeof(Gradient) bytes (D different tokens, taken as N).
template <class T, class Gradient>
void embedding_backward_tokens(ExecutionSpace const& exec, TokenBuckets const& buckets, Matrix<T const> d_out,
                               Index first, Matrix<Gradient> d_slice);
/// The second half.
/// Work: N C FLOP; N C sizeof(T) + S C sizeof(Gradient) bytes.
template <class T, class Gradient>
void embedding_backward_positions(ExecutionSpace const& exec, Matrix<T const> d_out, Index sequence,
                                  Matrix<Gradient> d_wpe, Write mode);

} // namespace trainstone
