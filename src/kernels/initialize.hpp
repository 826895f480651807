#pragma once

// Initial values from counters, so that a parameter's value depends on the seed and its own index alone: the same on
// every rank, for every sharding.

#include "core/views.hpp"

#include <cstdint>

namespace trainstone {

/// out[i] = stddev * normal(seed, initial_values, first_counter + i), rounded from fp64.
///                                                           reference: trainstone::normal (core/random.hpp)
/// \param[in]  exec     work is enqueued here; returns without fencing
/// \param[in]  seed, first_counter, stddev                   \param[out] out (n)   overwritten
/// Work: 10 n FLOP beside the integer work of Philox; n sizeof(T) bytes.
template <class T>
void normal_fill(ExecutionSpace const& exec, std::uint64_t seed, Index first_counter, double stddev, Vector<T> out);

/// What the elements of a part of a tensor begin with: element i with what normal_fill gives it, or, where the standard
/// deviation is 0, with `constant`.
struct InitialElements {
  std::uint64_t seed = 0;
  Index first_counter = 0;
  double stddev = 0;
  float constant = 0;
};

/// result = the sum in fp64 of |x - what x began with|. The order of the sum depends on the number of threads.
///                                                           reference: trainstone::normal (core/random.hpp)
/// \param[in]  exec     work is enqueued here; returns without fencing
/// \param[in]  initial, x (n)                                \param[out] result (1)   overwritten
/// \throws Error               if extents differ (message names both shapes)
/// Work: 13 n FLOP beside the integer work of Philox; 4 n + 8 bytes.
void sum_of_changes(ExecutionSpace const& exec, InitialElements const& initial, Vector<float const> x,
                    Vector<double> result);

} // namespace trainstone
