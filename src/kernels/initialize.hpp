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

} // namespace trainstone
