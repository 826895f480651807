#pragma once

// How one team adds up values, on hosts and on devices; included by norm.cpp and tests alone. What is named after
// devices runs anywhere with the same bits.

#include "kernels/common/flat.hpp"
#include "kernels/common/large_body.hpp"
#include "kernels/norm_tree.hpp"

namespace trainstone::Impl {

/// nodes[0] = the balanced binary tree over nodes[0], nodes[stride], ... , level by level.
struct HostTree {
  static RowPolicy policy(ExecutionSpace const& exec, Index teams) { return row_policy(exec, teams); }

  KOKKOS_INLINE_FUNCTION static void sum(Team const& team, double* nodes, Index stride, Index count) {
    for (Index width = 1; width < count; width *= 2)
      row_for(team, divide_up(count - width, 2 * width),
              [&](Index i) { nodes[2 * width * i * stride] += nodes[(2 * width * i + width) * stride]; });
  }
};

/// The same: every lane adds up a run of values, and the team the sums of runs. At most tree_leaves values.
struct DeviceTree {
  static constexpr int run = 8, lanes = static_cast<int>(tree_leaves) / run;
  static constexpr std::size_t scratch_bytes = lanes * sizeof(double);

  static RowPolicy policy(ExecutionSpace const& exec, Index teams) {
    RowPolicy result(exec, static_cast<int>(teams), host_reaches_memory ? 1 : lanes);
    result.set_scratch_size(0, Kokkos::PerTeam(scratch_bytes));
    return result;
  }

  /// Of values 0 ... count - 1, at most `run`.
  KOKKOS_INLINE_FUNCTION static double sum_of_run(double const* values, Index stride, int count) {
    double sums[run];
    for (int i = 0; i < run; ++i) sums[i] = i < count ? values[i * stride] : 0.0;
    for (int width = 1; width < run; width *= 2)
      for (int i = 0; i + width < run; i += 2 * width)
        if (i + width < count) sums[i] += sums[i + width];
    return sums[0];
  }

  KOKKOS_INLINE_FUNCTION static void sum(Team const& team, double* nodes, Index stride, Index count) {
    auto* const sums = static_cast<double*>(team.team_scratch(0).get_shmem(std::size_t{scratch_bytes}));
    int const values = static_cast<int>(count), runs = (values + run - 1) / run;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, runs),
                         [&](int i) { sums[i] = sum_of_run(nodes + i * run * stride, stride, values - i * run); });
    team.team_barrier();
    for (int width = 1; width < runs; width *= 2) {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, (runs + width - 1) / (2 * width)),
                           [&](int i) { sums[2 * width * i] += sums[2 * width * i + width]; });
      team.team_barrier();
    }
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      if (values > 0) nodes[0] = sums[0];
    });
  }
};

/// A tree of which some levels are added up.
struct GrowingTree {
  double *nodes, *result;
  Index terms;    ///< sums that are left
  Index team = 0; ///< the first one that adds some of them

  KOKKOS_INLINE_FUNCTION Index teams() const { return terms > tree_leaves ? divide_up(terms, tree_leaves) : 1; }
  KOKKOS_INLINE_FUNCTION bool ends() const { return terms <= tree_leaves; }
};

/// What a kernel is told of the trees that it goes over.
struct GrowingTrees {
  int count = 0;
  GrowingTree trees[most_tree_sections] = {};

  void add(GrowingTree const& tree) { trees[count++] = tree; }
  /// Deals out teams. \return how many there are
  Index number_teams() {
    Index teams = 0;
    for (int i = 0; i < count; ++i) {
      trees[i].team = teams;
      teams += trees[i].teams();
    }
    return teams;
  }
  KOKKOS_INLINE_FUNCTION GrowingTree const& of_team(Index team) const {
    int i = 0;
    while (i + 1 < count && trees[i + 1].team <= team) ++i;
    return trees[i];
  }
};

/// Of every tree: a team for every tree_leaves of its terms.
template <class Tree>
void launch_levels(Kernel const& kernel, ExecutionSpace const& exec, Index teams, GrowingTrees const& all,
                   Index stride) {
  launch_for(
      kernel, for_large_body(Tree::policy(exec, teams)), KOKKOS_LAMBDA(Team const& team) {
        GrowingTree const& tree = all.of_team(team.league_rank());
        Index const first = (team.league_rank() - tree.team) * tree_leaves;
        Tree::sum(team, tree.nodes + first * stride, stride, minimum(tree_leaves, tree.terms - first));
        if (!tree.ends()) return;
        Kokkos::single(Kokkos::PerTeam(team), [&] { *tree.result = tree.terms > 0 ? tree.nodes[0] : 0.0; });
      });
}

/// results = the balanced binary trees over the values of sections, which are lost: a team for every tree_leaves
/// values, then for as many sums of teams, until every section has one team.
template <class Tree>
void launch_trees(ExecutionSpace const& exec, double* values, std::span<TreeSection const> sections, double* results) {
  GrowingTrees all;
  for (TreeSection const& section : sections) all.add({values + section.begin, results++, section.count});
  for (Index stride = 1; all.count > 0; stride *= tree_leaves) {
    GrowingTrees left;
    Index added = 0, ended = 0;
    for (int i = 0; i < all.count; ++i) {
      GrowingTree tree = all.trees[i];
      added += tree.ends() ? tree.terms : tree.terms - tree.teams();
      ended += tree.ends() ? 1 : 0;
      if (tree.ends()) continue;
      tree.terms = tree.teams();
      left.add(tree);
    }
    Kernel const kernel{.label = "trainstone::norm::tree",
                        .flops = static_cast<std::uint64_t>(added),
                        .bytes = static_cast<std::uint64_t>(added + ended) * sizeof(double)};
    Index const teams = all.number_teams();
    launch_levels<Tree>(kernel, exec, teams, all, stride);
    all = left;
  }
}

/// The sum of all values, known to the whole team.
struct HostSum {
  static RowPolicy policy(ExecutionSpace const& exec) { return row_policy(exec, 1); }

  KOKKOS_INLINE_FUNCTION static double sum(Team const& team, float const* x, Index count) {
    return row_sum(team, count, [&](Index i) { return x[i]; });
  }
};

/// The same in another order: every lane adds up in fp64, several packets at a time.
struct DeviceSum {
  static constexpr int packet = packet_of<float>, packets = 4, lanes = 1024;

  static RowPolicy policy(ExecutionSpace const& exec) { return {exec, 1, host_reaches_memory ? 1 : lanes}; }

  KOKKOS_INLINE_FUNCTION static double sum(Team const& team, float const* x, Index count) {
    bool const aligned = reinterpret_cast<std::uintptr_t>(x) % (packet * sizeof(float)) == 0;
    double total = 0.0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, int{lanes}),
        [&](int lane, double& partial) {
          for (Index begin = lane * packet; begin < count; begin += lanes * packet * packets) {
            Packet<float, packet> terms[packets];
            for (int k = 0; k < packets; ++k) terms[k] = load_some(x, begin + k * lanes * packet, count, aligned);
            for (int k = 0; k < packets; ++k)
              for (int i = 0; i < packet; ++i) partial += terms[k][i];
          }
        },
        total);
    return total;
  }

private:
  /// Zeros behind the last element.
  KOKKOS_INLINE_FUNCTION static Packet<float, packet> load_some(float const* x, Index begin, Index count,
                                                                bool aligned) {
    if (aligned && begin + packet <= count) return load_packet<packet>(x + begin);
    Packet<float, packet> values;
    for (int i = 0; i < packet; ++i) values[i] = begin + i < count ? x[begin + i] : 0.0F;
    return values;
  }
};

using TreeSum = std::conditional_t<host_reaches_memory, HostTree, DeviceTree>;
using WholeSum = std::conditional_t<host_reaches_memory, HostSum, DeviceSum>;

} // namespace trainstone::Impl
