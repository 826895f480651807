#pragma once

// Input and right result of every collective, from its definition in comm/schedule/problem.hpp. Values are whole
// numbers, so that every order of addition gives the same and == is the right comparison; they differ between
// neighbouring elements and between ranks (fp32, doubles and integers: between all elements).

#include "comm/schedule/element.hpp"
#include "comm/schedule/problem.hpp"
#include "core/types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

namespace trainstone::test {

template <class T>
constexpr bool is_16_bit = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

template <class T>
double as_double(T value) {
  if constexpr (is_16_bit<T>)
    return static_cast<double>(to_float(value));
  else
    return static_cast<double>(value);
}

template <class T>
T from_double(double value) {
  if constexpr (is_16_bit<T>)
    return from_float<T>(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

/// What a rank's element i holds at the start, where the collective says that it holds something. Sums over 8 ranks are
/// exact: below 2^24 for fp32 and a million elements, below 2^7 for bf16.
template <class T>
double contribution(Rank rank, Rank ranks, Index i) {
  if constexpr (is_16_bit<T>) return static_cast<double>((7 * i + 3 * rank) % 16 - 5);
  return static_cast<double>(i + (rank + i) % ranks);
}

constexpr double untouched = -77; ///< what is undefined at the start

/// The parts of data that a rank holds at the start.
inline Range held(Problem const& problem, Rank rank) {
  Range const all{0, problem.elements()};
  Range const none{0, 0};
  switch (problem.collective) {
  case Collective::all_gather:
  case Collective::gather: return problem.partition.range(rank);
  case Collective::broadcast:
  case Collective::send:
  case Collective::scatter: return rank == problem.root ? all : none;
  case Collective::server_push: return rank < problem.workers() ? all : none;
  case Collective::server_pull: return problem.partition.range(rank);
  case Collective::send_receive:
  case Collective::copy: return {0, problem.elements() / 2};
  default: return all;
  }
}

template <class T>
std::vector<T> input(Problem const& problem, Rank rank) {
  std::vector<T> data(static_cast<std::size_t>(problem.elements()), from_double<T>(untouched));
  Range const range = held(problem, rank);
  for (Index i = range.begin; i < range.end; ++i)
    data[static_cast<std::size_t>(i)] = from_double<T>(contribution<T>(rank, problem.ranks(), i));
  return data;
}

template <class T>
double reduced(Operation operation, Rank contributors, Rank ranks, Index i) {
  double result = contribution<T>(0, ranks, i);
  for (Rank rank = 1; rank < contributors; ++rank) {
    double const value = contribution<T>(rank, ranks, i);
    if (operation == Operation::sum) result += value;
    if (operation == Operation::max) result = std::max(result, value);
    if (operation == Operation::min) result = std::min(result, value);
  }
  return result;
}

/// The first elements that differ from the definition's result, with both values; empty: none does.
template <class T>
std::string mismatch(Problem const& problem, Operation operation, Rank rank, std::vector<T> const& data) {
  std::string text;
  int shown = 0;
  auto const check = [&](Index i, double expected) {
    double const value = as_double(data[static_cast<std::size_t>(i)]);
    if (value != expected && shown++ < 4) text += fmt::format("[{}] {} instead of {}; ", i, value, expected);
  };
  auto const check_sum = [&](Range const& range, Rank contributors) {
    for (Index i = range.begin; i < range.end; ++i) check(i, reduced<T>(operation, contributors, problem.ranks(), i));
  };
  auto const check_blocks_of_owners = [&] {
    for (Rank owner = 0; owner < problem.ranks(); ++owner) {
      Range const block = problem.partition.range(owner);
      for (Index i = block.begin; i < block.end; ++i) check(i, contribution<T>(owner, problem.ranks(), i));
    }
  };
  auto const check_from_root = [&](Range const& range) {
    for (Index i = range.begin; i < range.end; ++i) check(i, contribution<T>(problem.root, problem.ranks(), i));
  };
  Range const all{0, problem.elements()};
  switch (problem.collective) {
  case Collective::all_reduce: check_sum(all, problem.ranks()); break;
  case Collective::reduce_scatter: check_sum(problem.partition.range(rank), problem.ranks()); break;
  case Collective::all_gather: check_blocks_of_owners(); break;
  case Collective::broadcast: check_from_root(all); break;
  case Collective::reduce:
    if (rank == problem.root) check_sum(all, problem.ranks());
    break;
  case Collective::gather:
    if (rank == problem.root) check_blocks_of_owners();
    break;
  case Collective::scatter: check_from_root(problem.partition.range(rank)); break;
  case Collective::all_to_all:
    for (Rank peer = 0; peer < problem.ranks(); ++peer) {
      Range const mine = all_to_all_range(problem.partition, rank, peer);
      Range const theirs = all_to_all_range(problem.partition, peer, rank);
      for (Index k = 0; k < mine.size(); ++k)
        check(mine.begin + k, contribution<T>(peer, problem.ranks(), theirs.begin + k));
    }
    break;
  case Collective::barrier:
  case Collective::signal_wait: break;
  case Collective::server_push:
    if (rank >= problem.workers()) check_sum(problem.partition.range(rank), problem.workers());
    break;
  case Collective::server_pull:
    if (rank < problem.workers()) check_blocks_of_owners();
    break;
  case Collective::send_receive:
    for (Index i = 0, half = problem.elements() / 2; i < half; ++i)
      check(half + i, contribution<T>((rank + problem.distance) % problem.ranks(), problem.ranks(), i));
    break;
  case Collective::copy:
    for (Index i = 0, half = problem.elements() / 2; i < half; ++i)
      check(half + i, contribution<T>(rank, problem.ranks(), i));
    break;
  case Collective::send:
    if ((rank + problem.distance) % problem.ranks() == problem.root) check_from_root(all);
    break;
  }
  return text;
}

} // namespace trainstone::test
