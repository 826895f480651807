#pragma once

// Reductions of whole vectors to one number: the squared norm for clipping, the sum of losses, and the count of
// non-finite values. Results stay on the device. Fixed orders, no atomics: the same bits in every run and for every
// number of threads.

#include "core/views.hpp"
#include "kernels/norm_block.hpp"
#include "kernels/norm_tree.hpp"

#include <cstdint>
#include <span>

namespace trainstone {

/// block_sums = the sum of x^2 over each block of 256 elements, in fp32 lanes.     reference: reference::squared_norm
/// \param[in]  exec            work is enqueued here; returns without fencing
/// \param[in]  x (n)           n is a multiple of norm_block; padding must be 0
/// \param[out] block_sums (n / norm_block)   overwritten
/// \throws Error               if extents differ (message names both shapes)
/// Work: 2 n FLOP; n sizeof(T) + n / 32 bytes.
template <class T>
void squared_block_sums(ExecutionSpace const& exec, Vector<T const> x, Vector<double> block_sums);

/// result = the balanced binary tree over the values: neighbours are added level by level, a last value without a
/// partner moves up unchanged.                                reference: reference::squared_norm
/// \param[in]     exec         work is enqueued here; returns without fencing
/// \param[in,out] values (n)   lost       \param[out] result (1)   overwritten; 0 if n is 0
/// \throws Error               if extents differ (message names both shapes)
/// Starts tree_sum_launches(n) kernels. Work of all: n FLOP; 8 n + 8 bytes.
void tree_sum(ExecutionSpace const& exec, Vector<double> values, Vector<double> result);

/// The same of many sections of the values at once: results[s] is the tree over section s.
/// \param[in]     exec         work is enqueued here; returns without fencing
/// \param[in,out] values (n)   those of sections are lost   \param[in] sections  that do not overlap
/// \param[out] results (S)     overwritten
/// \throws Error               if a section leaves the values, or there are more or fewer results than sections
/// Starts tree_sums_launches(sections) kernels. Work of all: as that of tree_sum() of every section.
void tree_sums(ExecutionSpace const& exec, Vector<double> values, std::span<TreeSection const> sections,
               Vector<double> results);

/// values = the same range of every share, one behind the other: values[i] = gathered[i / m][first + i % m], m = n / P.
///                                                           reference: itself
/// \param[in]  exec            work is enqueued here; returns without fencing
/// \param[in]  gathered (P, k) shares      \param[in] first   of the range, in each share
/// \param[out] values (n)      overwritten; n is a multiple of P, first + n / P <= k
/// \throws Error               if the range is outside of the shares
/// Work: 0 FLOP; 16 n bytes.
void collect_shares(ExecutionSpace const& exec, Matrix<double const> gathered, Index first, Vector<double> values);

/// result = the sum of x in fp64, in a fixed order.          reference: reference::sum
/// \param[in]  exec            work is enqueued here; returns without fencing
/// \param[in]  x (n)           \param[out] result (1)   overwritten
/// \throws Error               if extents differ (message names both shapes)
/// Work: n FLOP; 4 n + 8 bytes.
void sum(ExecutionSpace const& exec, Vector<float const> x, Vector<double> result);

/// result = how many elements are infinite or NaN: names the part after a non-finite loss.
///                                                           reference: std::isfinite, element by element
/// \param[in]  exec            work is enqueued here; returns without fencing
/// \param[in]  x (n)           \param[out] result (1)   overwritten
/// \throws Error               if extents differ (message names both shapes)
/// Work: 0 FLOP; n sizeof(T) + 8 bytes.
template <class T>
void count_non_finite(ExecutionSpace const& exec, Vector<T const> x, Vector<std::int64_t> result);

} // namespace trainstone
