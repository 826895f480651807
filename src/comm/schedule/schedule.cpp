#include "comm/schedule/schedule.hpp"

namespace trainstone {

namespace {

/// Whether a list of enumerators can be indexed by them.
template <class List>
constexpr bool is_in_order(List const& list) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (static_cast<std::size_t>(list[i]) != i) return false;
  return true;
}
static_assert(is_in_order(collectives) && is_in_order(algorithms), "the lists have the enumerators' order");

} // namespace

std::string_view to_string(Collective collective) {
  switch (collective) {
  case Collective::all_reduce: return "all_reduce";
  case Collective::reduce_scatter: return "reduce_scatter";
  case Collective::all_gather: return "all_gather";
  case Collective::broadcast: return "broadcast";
  case Collective::reduce: return "reduce";
  case Collective::gather: return "gather";
  case Collective::scatter: return "scatter";
  case Collective::all_to_all: return "all_to_all";
  case Collective::barrier: return "barrier";
  case Collective::server_push: return "server_push";
  case Collective::server_pull: return "server_pull";
  case Collective::send_receive: return "send_receive";
  case Collective::send: return "send";
  case Collective::copy: return "copy";
  case Collective::signal_wait: return "signal_wait";
  }
  return "unknown";
}

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
  case Algorithm::naive: return "naive";
  case Algorithm::whole_ring: return "whole_ring";
  case Algorithm::main_device: return "main_device";
  case Algorithm::ring: return "ring";
  case Algorithm::bidirectional_ring: return "bidirectional_ring";
  case Algorithm::segmented_ring: return "segmented_ring";
  case Algorithm::tree: return "tree";
  case Algorithm::pipelined_tree: return "pipelined_tree";
  case Algorithm::butterfly: return "butterfly";
  case Algorithm::rabenseifner: return "rabenseifner";
  case Algorithm::circulant: return "circulant";
  case Algorithm::ordered: return "ordered";
  case Algorithm::hierarchical: return "hierarchical";
  case Algorithm::shared: return "shared";
  case Algorithm::shared_copy: return "shared_copy";
  case Algorithm::shared_mailbox: return "shared_mailbox";
  case Algorithm::shared_push: return "shared_push";
  case Algorithm::direct: return "direct";
  case Algorithm::recursive: return "recursive";
  case Algorithm::bruck: return "bruck";
  case Algorithm::binomial: return "binomial";
  case Algorithm::scatter_all_gather: return "scatter_all_gather";
  case Algorithm::linear: return "linear";
  case Algorithm::pairwise: return "pairwise";
  case Algorithm::dissemination: return "dissemination";
  }
  return "unknown";
}

std::string_view to_string(Action action) {
  switch (action) {
  case Action::send: return "send";
  case Action::receive: return "receive";
  case Action::reduce: return "reduce";
  case Action::copy: return "copy";
  case Action::push: return "push";
  case Action::combine: return "combine";
  case Action::node_barrier: return "node_barrier";
  }
  return "unknown";
}

std::string_view to_string(BufferId buffer) {
  switch (buffer) {
  case BufferId::data: return "data";
  case BufferId::scratch: return "scratch";
  case BufferId::mailbox: return "mailbox";
  }
  return "unknown";
}

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter || collective == Collective::send;
}

bool has_servers(Collective collective) {
  return collective == Collective::server_push || collective == Collective::server_pull;
}

bool adds_up(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce || collective == Collective::server_push;
}

bool has_data(Collective collective) {
  return collective != Collective::barrier && collective != Collective::signal_wait;
}

bool has_halves(Collective collective) {
  return collective == Collective::send_receive || collective == Collective::copy;
}

} // namespace trainstone
