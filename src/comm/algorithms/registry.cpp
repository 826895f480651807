#include "comm/algorithms/registry.hpp"

#include "comm/algorithms/bidirectional_ring.hpp"
#include "comm/algorithms/binomial_broadcast.hpp"
#include "comm/algorithms/binomial_gather.hpp"
#include "comm/algorithms/binomial_reduce.hpp"
#include "comm/algorithms/binomial_scatter.hpp"
#include "comm/algorithms/bruck.hpp"
#include "comm/algorithms/butterfly.hpp"
#include "comm/algorithms/circulant.hpp"
#include "comm/algorithms/direct.hpp"
#include "comm/algorithms/dissemination.hpp"
#include "comm/algorithms/hierarchical.hpp"
#include "comm/algorithms/linear.hpp"
#include "comm/algorithms/main_device.hpp"
#include "comm/algorithms/naive.hpp"
#include "comm/algorithms/ordered.hpp"
#include "comm/algorithms/pairwise.hpp"
#include "comm/algorithms/parameter_server.hpp"
#include "comm/algorithms/pipelined_tree.hpp"
#include "comm/algorithms/rabenseifner.hpp"
#include "comm/algorithms/recursive.hpp"
#include "comm/algorithms/ring.hpp"
#include "comm/algorithms/scatter_all_gather.hpp"
#include "comm/algorithms/segmented_ring.hpp"
#include "comm/algorithms/send_receive.hpp"
#include "comm/algorithms/shared.hpp"
#include "comm/algorithms/shared_copy.hpp"
#include "comm/algorithms/shared_mailbox.hpp"
#include "comm/algorithms/shared_push.hpp"
#include "comm/algorithms/tree.hpp"
#include "comm/algorithms/whole_ring.hpp"
#include "core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace trainstone {

namespace {

constexpr std::array table{
    // --- all-reduce
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::naive, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_naive_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::whole_ring, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_whole_ring_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::main_device, MemoryNeed::nothing, PricingSymmetry::none,
                        make_main_device_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::ring, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_ring_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::bidirectional_ring, MemoryNeed::nothing,
                        PricingSymmetry::nodes, make_bidirectional_ring_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::segmented_ring, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_segmented_ring_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::tree, MemoryNeed::nothing, PricingSymmetry::none,
                        make_tree_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::pipelined_tree, MemoryNeed::nothing, PricingSymmetry::none,
                        make_pipelined_tree_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::butterfly, MemoryNeed::nothing,
                        PricingSymmetry::nodes_if_power_of_two, make_butterfly_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::rabenseifner, MemoryNeed::nothing,
                        PricingSymmetry::nodes_if_power_of_two, make_rabenseifner_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::circulant, MemoryNeed::nothing, PricingSymmetry::none,
                        make_circulant_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::ordered, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_ordered_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::hierarchical, MemoryNeed::shared_memory_if_any,
                        PricingSymmetry::nodes_if_power_of_two, make_hierarchical_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::shared, MemoryNeed::shared_memory, PricingSymmetry::none,
                        make_shared_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::shared_copy, MemoryNeed::shared_memory,
                        PricingSymmetry::none, make_shared_copy_all_reduce},
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::shared_mailbox, MemoryNeed::shared_memory,
                        PricingSymmetry::none, make_shared_mailbox_all_reduce, mailbox_elements},
    // --- reduce-scatter
    RegisteredAlgorithm{Collective::reduce_scatter, Algorithm::ring, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_ring_reduce_scatter},
    RegisteredAlgorithm{Collective::reduce_scatter, Algorithm::direct, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_direct_reduce_scatter},
    RegisteredAlgorithm{Collective::reduce_scatter, Algorithm::circulant, MemoryNeed::nothing, PricingSymmetry::none,
                        make_circulant_reduce_scatter},
    RegisteredAlgorithm{Collective::reduce_scatter, Algorithm::recursive, MemoryNeed::nothing,
                        PricingSymmetry::nodes_if_power_of_two, make_recursive_reduce_scatter},
    RegisteredAlgorithm{Collective::reduce_scatter, Algorithm::ordered, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_ordered_reduce_scatter},
    RegisteredAlgorithm{Collective::reduce_scatter, Algorithm::shared, MemoryNeed::shared_memory, PricingSymmetry::none,
                        make_shared_reduce_scatter},
    RegisteredAlgorithm{Collective::reduce_scatter, Algorithm::shared_mailbox, MemoryNeed::shared_memory,
                        PricingSymmetry::none, make_shared_mailbox_reduce_scatter, mailbox_elements},
    // --- all-gather
    RegisteredAlgorithm{Collective::all_gather, Algorithm::ring, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_ring_all_gather},
    RegisteredAlgorithm{Collective::all_gather, Algorithm::direct, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_direct_all_gather},
    RegisteredAlgorithm{Collective::all_gather, Algorithm::circulant, MemoryNeed::nothing, PricingSymmetry::none,
                        make_circulant_all_gather},
    RegisteredAlgorithm{Collective::all_gather, Algorithm::recursive, MemoryNeed::nothing,
                        PricingSymmetry::nodes_if_power_of_two, make_recursive_all_gather},
    RegisteredAlgorithm{Collective::all_gather, Algorithm::bruck, MemoryNeed::nothing, PricingSymmetry::none,
                        make_bruck_all_gather},
    RegisteredAlgorithm{Collective::all_gather, Algorithm::shared, MemoryNeed::shared_memory, PricingSymmetry::none,
                        make_shared_all_gather},
    RegisteredAlgorithm{Collective::all_gather, Algorithm::shared_mailbox, MemoryNeed::shared_memory,
                        PricingSymmetry::none, make_shared_mailbox_all_gather, mailbox_elements},
    RegisteredAlgorithm{Collective::all_gather, Algorithm::shared_push, MemoryNeed::shared_memory,
                        PricingSymmetry::none, make_shared_push_all_gather},
    // --- broadcast
    RegisteredAlgorithm{Collective::broadcast, Algorithm::binomial, MemoryNeed::nothing, PricingSymmetry::none,
                        make_binomial_broadcast},
    RegisteredAlgorithm{Collective::broadcast, Algorithm::scatter_all_gather, MemoryNeed::nothing,
                        PricingSymmetry::none, make_scatter_all_gather_broadcast},
    RegisteredAlgorithm{Collective::broadcast, Algorithm::linear, MemoryNeed::nothing, PricingSymmetry::none,
                        make_linear_broadcast},
    RegisteredAlgorithm{Collective::broadcast, Algorithm::shared, MemoryNeed::shared_memory, PricingSymmetry::none,
                        make_shared_broadcast},
    RegisteredAlgorithm{Collective::broadcast, Algorithm::shared_mailbox, MemoryNeed::shared_memory,
                        PricingSymmetry::none, make_shared_mailbox_broadcast, mailbox_elements},
    RegisteredAlgorithm{Collective::broadcast, Algorithm::shared_push, MemoryNeed::shared_memory, PricingSymmetry::none,
                        make_shared_push_broadcast},
    // --- reduce
    RegisteredAlgorithm{Collective::reduce, Algorithm::binomial, MemoryNeed::nothing, PricingSymmetry::none,
                        make_binomial_reduce},
    RegisteredAlgorithm{Collective::reduce, Algorithm::linear, MemoryNeed::nothing, PricingSymmetry::none,
                        make_linear_reduce},
    RegisteredAlgorithm{Collective::reduce, Algorithm::ordered, MemoryNeed::nothing, PricingSymmetry::none,
                        make_ordered_reduce},
    RegisteredAlgorithm{Collective::reduce, Algorithm::shared, MemoryNeed::shared_memory, PricingSymmetry::none,
                        make_shared_reduce},
    // --- gather
    RegisteredAlgorithm{Collective::gather, Algorithm::linear, MemoryNeed::nothing, PricingSymmetry::none,
                        make_linear_gather},
    RegisteredAlgorithm{Collective::gather, Algorithm::binomial, MemoryNeed::nothing, PricingSymmetry::none,
                        make_binomial_gather},
    // --- scatter
    RegisteredAlgorithm{Collective::scatter, Algorithm::linear, MemoryNeed::nothing, PricingSymmetry::none,
                        make_linear_scatter},
    RegisteredAlgorithm{Collective::scatter, Algorithm::binomial, MemoryNeed::nothing, PricingSymmetry::none,
                        make_binomial_scatter},
    // --- all-to-all
    RegisteredAlgorithm{Collective::all_to_all, Algorithm::pairwise, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_pairwise_all_to_all},
    // --- barrier
    RegisteredAlgorithm{Collective::barrier, Algorithm::dissemination, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_dissemination_barrier},
    // --- parameter servers
    RegisteredAlgorithm{Collective::server_push, Algorithm::direct, MemoryNeed::nothing, PricingSymmetry::none,
                        make_direct_server_push},
    RegisteredAlgorithm{Collective::server_push, Algorithm::ordered, MemoryNeed::nothing, PricingSymmetry::none,
                        make_ordered_server_push},
    RegisteredAlgorithm{Collective::server_pull, Algorithm::direct, MemoryNeed::nothing, PricingSymmetry::none,
                        make_direct_server_pull},
    // --- point to point
    RegisteredAlgorithm{Collective::send_receive, Algorithm::direct, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_direct_send_receive},
    RegisteredAlgorithm{Collective::send_receive, Algorithm::shared_copy, MemoryNeed::shared_memory,
                        PricingSymmetry::none, make_shared_copy_send_receive},
    RegisteredAlgorithm{Collective::send, Algorithm::direct, MemoryNeed::nothing, PricingSymmetry::none,
                        make_direct_send},
    RegisteredAlgorithm{Collective::copy, Algorithm::direct, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_direct_send_receive},
    RegisteredAlgorithm{Collective::signal_wait, Algorithm::direct, MemoryNeed::nothing, PricingSymmetry::nodes,
                        make_direct_signal_wait},
    RegisteredAlgorithm{Collective::signal_wait, Algorithm::shared, MemoryNeed::shared_memory, PricingSymmetry::none,
                        make_shared_signal_wait},
};

void require_consistent(Problem const& problem) {
  Rank const ranks = problem.ranks();
  TRAINSTONE_REQUIRE(problem.topology.ranks() == ranks, "{} blocks for the {} ranks of the topology", ranks,
                     problem.topology.ranks());
  TRAINSTONE_REQUIRE(problem.partition.offsets().front() == 0, "the data begins at element {}",
                     problem.partition.offsets().front());
  TRAINSTONE_REQUIRE(problem.root >= 0 && problem.root < ranks, "no root {} among {} ranks", problem.root, ranks);
  TRAINSTONE_REQUIRE(has_root(problem.collective) || problem.root == 0, "{} has no root",
                     to_string(problem.collective));
  TRAINSTONE_REQUIRE(problem.distance >= 0, "a distance of {}", problem.distance);
  TRAINSTONE_REQUIRE(problem.segment >= 0, "segments of {} elements", problem.segment);
  TRAINSTONE_REQUIRE(has_data(problem.collective) || problem.elements() == 0, "a {} of {} elements",
                     to_string(problem.collective), problem.elements());
  if (!has_servers(problem.collective)) {
    TRAINSTONE_REQUIRE(problem.servers == 0, "{} has no servers", to_string(problem.collective));
    return;
  }
  TRAINSTONE_REQUIRE(problem.servers >= 1 && problem.servers < ranks, "{} servers among {} ranks", problem.servers,
                     ranks);
  TRAINSTONE_REQUIRE(problem.partition.range(0, problem.workers()).empty(), "workers have blocks of their own");
}

} // namespace

std::span<RegisteredAlgorithm const> registered_algorithms() { return table; }

std::vector<Algorithm> algorithms_of(Collective collective) {
  std::vector<Algorithm> found;
  for (RegisteredAlgorithm const& line : table) {
    if (line.collective == collective) found.push_back(line.algorithm);
  }
  return found;
}

std::vector<Algorithm> unlimited_algorithms_of(Collective collective) {
  std::vector<Algorithm> found = algorithms_of(collective);
  std::erase_if(found, [&](Algorithm algorithm) {
    return find_algorithm(collective, algorithm).most_elements < std::numeric_limits<Index>::max();
  });
  return found;
}

std::vector<std::string> algorithm_names(Collective collective, std::function<bool(Algorithm)> const& is_legal) {
  std::vector<std::string> names{"auto"};
  for (Algorithm const algorithm : unlimited_algorithms_of(collective))
    if (is_legal(algorithm)) names.emplace_back(to_string(algorithm));
  return names;
}

bool is_segmented(Algorithm algorithm) {
  return algorithm == Algorithm::segmented_ring || algorithm == Algorithm::pipelined_tree;
}

Collective parse_collective(std::string_view name) {
  auto const found = std::ranges::find(collectives, name, [](Collective c) { return to_string(c); });
  if (found != collectives.end()) return *found;
  std::vector<std::string_view> legal;
  for (Collective const collective : collectives) legal.push_back(to_string(collective));
  throw InputError(fmt::format("there is no collective \"{}\"; there is: {}", name, fmt::join(legal, ", ")));
}

Algorithm parse_algorithm(Collective collective, std::string_view name) {
  std::vector<std::string_view> legal;
  for (Algorithm const algorithm : algorithms_of(collective)) {
    if (to_string(algorithm) == name) return algorithm;
    legal.push_back(to_string(algorithm));
  }
  throw InputError(
      fmt::format("{} has no algorithm \"{}\"; there is: {}", to_string(collective), name, fmt::join(legal, ", ")));
}

RegisteredAlgorithm const& find_algorithm(Collective collective, Algorithm algorithm) {
  auto const found = std::ranges::find_if(
      table, [&](auto const& line) { return line.collective == collective && line.algorithm == algorithm; });
  TRAINSTONE_REQUIRE(found != table.end(), "{} has no algorithm {}", to_string(collective), to_string(algorithm));
  return *found;
}

std::string refusal(Problem const& problem, Algorithm algorithm) {
  RegisteredAlgorithm const& line = find_algorithm(problem.collective, algorithm);
  std::string const name = fmt::format("{} {}", to_string(problem.collective), to_string(algorithm));
  if (problem.elements() > line.most_elements) {
    return fmt::format("{} is for up to {} elements", name, line.most_elements);
  }
  if (line.needs != MemoryNeed::shared_memory) return "";
  if (problem.topology.nodes() > 1) {
    return fmt::format("{} works inside one node, and the {} ranks are on {} nodes", name, problem.ranks(),
                       problem.topology.nodes());
  }
  return problem.shared_memory ? "" : name + " needs buffers in the node's shared memory";
}

Schedule make_schedule(Problem const& problem, Algorithm algorithm, Rank rank) {
  require_consistent(problem);
  TRAINSTONE_REQUIRE(rank >= 0 && rank < problem.ranks(), "no rank {} among {}", rank, problem.ranks());
  std::string const reason = refusal(problem, algorithm);
  TRAINSTONE_REQUIRE_INPUT(reason.empty(), "{}", reason);
  Schedule schedule = find_algorithm(problem.collective, algorithm).make(problem, rank);
  schedule.agreement = agreement_on(problem);
  if (!is_segmented(algorithm)) schedule.agreement.segment = 0;
  return schedule;
}

std::vector<Schedule> make_schedules(Problem const& problem, Algorithm algorithm) {
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(problem.ranks()));
  for (Rank rank = 0; rank < problem.ranks(); ++rank) schedules.push_back(make_schedule(problem, algorithm, rank));
  return schedules;
}

} // namespace trainstone
