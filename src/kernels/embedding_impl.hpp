#pragma once

// Bodies of embedding.hpp; included by embedding.cpp alone.

#include "kernels/embedding.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

inline void require_whole_sequences(char const* where, Index rows, Index sequence, Index positions) {
  TRAINSTONE_REQUIRE(sequence > 0 && rows % sequence == 0 && sequence <= positions,
                     "{}: {} rows are not whole sequences of {} within {} positions", where, rows, sequence, positions);
}

} // namespace Impl

template <class T>
void embedding_forward(ExecutionSpace const& exec, Vector<std::int32_t const> tokens, Matrix<T const> wte,
                       Matrix<T const> wpe, Index sequence, Matrix<T> out) {
  Index const rows = Impl::extent(tokens, 0), columns = Impl::extent(wte, 1);
  Impl::require_shape("embedding_forward: wpe", wpe, {Impl::extent(wpe, 0), columns});
  Impl::require_shape("embedding_forward: out", out, {rows, columns});
  Impl::require_whole_sequences("embedding_forward", rows, sequence, Impl::extent(wpe, 0));
  Kernel const kernel{.label = "trainstone::embedding::forward",
                      .flops = out.size(),
                      .bytes = 3 * out.size() * sizeof(T) + tokens.size() * sizeof(std::int32_t)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T const* const token_row = Impl::row_of(wte, tokens(n));
        T const* const position_row = Impl::row_of(wpe, n % sequence);
        T* const out_row = Impl::row_of(out, n);
        Impl::row_for(team, columns,
                      [&](Index c) { out_row[c] = from_float<T>(to_float(token_row[c]) + to_float(position_row[c])); });
      });
}

template <class T, class Out>
void embedding_lookup(ExecutionSpace const& exec, Vector<std::int32_t const> tokens, Index first, Matrix<T const> slice,
                      Write others, Matrix<Out> out) {
  Index const rows = Impl::extent(tokens, 0), size = Impl::extent(slice, 0), columns = Impl::extent(slice, 1);
  Impl::require_shape("embedding_lookup: out", out, {rows, columns});
  Kernel const kernel{.label = "trainstone::embedding::lookup",
                      .flops = out.size(),
                      .bytes = out.size() * (sizeof(T) + sizeof(Out)) + tokens.size() * sizeof(std::int32_t)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank(), row = tokens(n) - first;
        Out* const out_row = Impl::row_of(out, n);
        if (0 <= row && row < size) {
          T const* const token_row = Impl::row_of(slice, row);
          Impl::row_for(team, columns, [&](Index c) { out_row[c] = from_float<Out>(to_float(token_row[c]) + 0.0F); });
        } else if (others == Write::overwrite) {
          Impl::row_for(team, columns, [&](Index c) { out_row[c] = from_float<Out>(0.0F); });
        }
      });
}

template <class T>
void embedding_add_positions(ExecutionSpace const& exec, Matrix<T const> looked_up, Matrix<T const> wpe, Index sequence,
                             Matrix<T> out) {
  Index const rows = Impl::extent(looked_up, 0), columns = Impl::extent(looked_up, 1);
  Impl::require_shape("embedding_add_positions: wpe", wpe, {Impl::extent(wpe, 0), columns});
  Impl::require_shape("embedding_add_positions: out", out, {rows, columns});
  Impl::require_whole_sequences("embedding_add_positions", rows, sequence, Impl::extent(wpe, 0));
  Kernel const kernel{
      .label = "trainstone::embedding::add_positions", .flops = out.size(), .bytes = 3 * out.size() * sizeof(T)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const n = team.league_rank();
        T const* const row = Impl::row_of(looked_up, n);
        T const* const position_row = Impl::row_of(wpe, n % sequence);
        T* const out_row = Impl::row_of(out, n);
        Impl::row_for(team, columns,
                      [&](Index c) { out_row[c] = from_float<T>(to_float(row[c]) + to_float(position_row[c])); });
      });
}

template <class T, class Gradient>
void embedding_backward_tokens(ExecutionSpace const& exec, TokenBuckets const& buckets, Matrix<T const> d_out,
                               Index first, Matrix<Gradient> d_slice) {
  Index const rows = Impl::extent(d_out, 0), columns = Impl::extent(d_out, 1), size = Impl::extent(d_slice, 0);
  Impl::require_shape("embedding_backward: buckets.order", buckets.order, {rows});
  Impl::require_shape("embedding_backward: buckets.begin", buckets.begin, {rows + 1});
  Impl::require_shape("embedding_backward: buckets.token", buckets.token, {rows});
  Impl::require_shape("embedding_backward: d_wte", d_slice, {size, columns});
  auto const order = buckets.order;
  auto const begin = buckets.begin;
  auto const token = buckets.token;
  Kernel const kernel{.label = "trainstone::embedding::backward_tokens",
                      .flops = d_out.size(),
                      .bytes =
                          d_out.size() * (sizeof(T) + 2 * sizeof(Gradient)) + 3 * order.size() * sizeof(std::int32_t)};
  launch_for(
      kernel, Impl::row_policy(exec, rows), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const bucket = team.league_rank();
        Index const begins = begin(bucket), row = token(bucket) - first;
        Index const count = begin(bucket + 1) - begins;
        if (count == 0 || row < 0 || row >= size) return;
        T const* const terms = d_out.data();
        Gradient* const sums = Impl::row_of(d_slice, row);
        Impl::column_sums(
            team, 1, columns, [&](Index) { return count; },
            [&](Index, Index i, Index c) { return to_float(terms[order(begins + i) * columns + c]); },
            [&](Index, Index c, float sum) { Impl::write(sums[c], sum, Write::add); });
      });
}

template <class T, class Gradient>
void embedding_backward_positions(ExecutionSpace const& exec, Matrix<T const> d_out, Index sequence,
                                  Matrix<Gradient> d_wpe, Write mode) {
  Index const rows = Impl::extent(d_out, 0), columns = Impl::extent(d_out, 1), positions = Impl::extent(d_wpe, 0);
  Impl::require_shape("embedding_backward: d_wpe", d_wpe, {positions, columns});
  Impl::require_whole_sequences("embedding_backward", rows, sequence, positions);
  Kernel const kernel{.label = "trainstone::embedding::backward_positions",
                      .flops = d_out.size(),
                      .bytes =
                          d_out.size() * sizeof(T) + (mode == Write::add ? 2 : 1) * d_wpe.size() * sizeof(Gradient)};
  launch_for(
      kernel, Impl::row_policy(exec, positions), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const position = team.league_rank();
        Index const batch = position < sequence ? rows / sequence : 0;
        T const* const terms = d_out.data() + position * columns;
        Gradient* const sums = Impl::row_of(d_wpe, position);
        Impl::column_sums(
            team, 1, columns, [&](Index) { return batch; },
            [&](Index, Index b, Index c) { return to_float(terms[b * sequence * columns + c]); },
            [&](Index, Index c, float sum) { Impl::write(sums[c], sum, mode); });
      });
}

template <class T, class Gradient>
void embedding_backward(ExecutionSpace const& exec, TokenBuckets const& buckets, Matrix<T const> d_out, Index sequence,
                        Matrix<Gradient> d_wte, Matrix<Gradient> d_wpe, Write wpe_mode) {
  embedding_backward_tokens<T>(exec, buckets, d_out, 0, d_wte);
  embedding_backward_positions<T>(exec, d_out, sequence, d_wpe, wpe_mode);
}

} // namespace trainstone
