#include "report/strategy_text.hpp"

#include "core/aligned.hpp"
#include "core/plural.hpp"
#include "parallel/program/step_walk.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

constexpr std::size_t most_columns = 132; // of a terminal

std::string holding_text(Holding holding, Rank member) {
  switch (holding) {
  case Holding::nothing: return "-";
  case Holding::share: return std::to_string(member);
  case Holding::own: return "own";
  case Holding::under_way: return ">";
  case Holding::whole: return "all";
  case Holding::copy: return "copy";
  }
  return "";
}

std::string axis_text(Mesh const& mesh, Axis axis) {
  if (mesh.shard == 1 || mesh.replica == 1) return "";
  return axis == Axis::shard ? " in every shard group" : " across replicas";
}

/// "4096", or "0 to 512" where ranks differ.
std::string sent_text(WalkedCollective const& collective, bool with_bytes) {
  auto const [least, most] = std::ranges::minmax(collective.traffic, {}, &Traffic::bytes);
  bool const alike = least.bytes == most.bytes;
  std::string const bytes = with_bytes ? fmt::format(" of {}", to_string(collective.storage)) : "";
  if (!alike) return fmt::format("ranks send {} to {} elements{}", least.bytes, most.bytes, bytes);
  return fmt::format("every rank sends {} elements{} in {}", most.bytes, bytes,
                     plural(static_cast<Index>(most.messages), "message"));
}

/// " from rank 2": who owns what a collective brings or adds up; empty if nobody does.
std::string root_text(StepWalk const& walk, PlannedCollective const& planned) {
  if (!has_root(planned.problem.collective)) return "";
  Rank const root = walk.layout().mesh.members(planned.axis, 0)[static_cast<std::size_t>(planned.problem.root)];
  return fmt::format(" {} rank {}", planned.problem.collective == Collective::broadcast ? "from" : "to", root);
}

std::string owners_table(StepWalk const& walk) {
  std::vector<std::vector<std::string>> rows{{""}, {"elements"}};
  for (ParameterGroup const& group : walk.layout().groups) {
    rows[0].push_back(group.name);
    rows[1].push_back(std::to_string(group.padded));
  }
  for (ShardPlan const& plan : walk.plans) {
    rows.push_back({fmt::format("rank {}", plan.layout.rank)});
    for (Index g = 0; g < std::ssize(plan.layout.groups); ++g) {
      Range const share = plan.layout.share(g);
      rows.back().push_back(share.size() == 0 ? "-" : fmt::format("[{}, {})", share.begin, share.end));
    }
  }
  return folded(rows, most_columns);
}

/// What an update does with types.
std::string types_text(StepWalk const& walk) {
  StateTypes const& types = walk.layout().types;
  return fmt::format(
      "  in fp32: {}master copy and {} of what the rank owns; parameters are the master copy, rounded to "
      "{}\n",
      types.gradient_copy ? "a copy of the gradients, " : "", plural(walk.layout().moments, "moment"),
      to_string(types.parameters));
}

std::string moment_text(StepWalk const& walk, std::size_t number) {
  Moment const& moment = walk.moments[number];
  std::string text = "\n" + moment.name + "\n";
  if (!moment.dropped.empty()) text += fmt::format("  dropped: {}\n", unit_names(walk, moment.dropped));
  for (WalkedCollective const& started : moment.before)
    text += fmt::format("  starts: {}\n", collective_text(walk, started));
  std::vector<std::vector<std::string>> rows{{""}};
  for (ParameterUnit const& unit : walk.layout().units) rows[0].push_back(unit.name);
  for (Rank rank = 0; rank < walk.ranks(); ++rank) {
    rows.push_back({fmt::format("rank {}", rank)});
    for (std::size_t g = 0; g < moment.states.size(); ++g) {
      auto const text_at = [&](Moment const& one) {
        return held_text(walk, static_cast<Index>(g), one.states[g], rank);
      };
      bool const changed = number > 0 && text_at(moment) != text_at(walk.moments[number - 1]);
      rows.back().push_back(text_at(moment) + (changed ? "*" : ""));
    }
  }
  text += folded(rows, most_columns);
  if (walk.is_mixed() && moment.name == "update") text += types_text(walk);
  for (WalkedCollective const& started : moment.after) text += fmt::format("  {}\n", end_text(walk, started));
  return text;
}

/// What every rank sends, over all collectives that `counts` is true for; the busiest rank's.
template <class Counts>
std::uint64_t busiest(StepWalk const& walk, Counts const& counts) {
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(walk.ranks()), 0);
  for (WalkedCollective const& collective : collectives_of(walk))
    if (counts(collective))
      for (std::size_t rank = 0; rank < sent.size(); ++rank) sent[rank] += collective.traffic[rank].bytes;
  return std::ranges::max(sent);
}

std::string kind_of(StepWalk const& walk, PlannedCollective const& planned) {
  return fmt::format("{} {}{}", to_string(planned.problem.collective), to_string(planned.algorithm),
                     axis_text(walk.layout().mesh, planned.axis));
}

/// "3 (N-1)/N Psi": `sent` elements on an axis of several ranks.
std::string in_units(StateLayout const& layout, Axis axis, std::uint64_t sent) {
  Mesh const& mesh = layout.mesh;
  bool const both = mesh.shard > 1 && mesh.replica > 1;
  char const* const letter = !both ? "N" : axis == Axis::shard ? "F" : "R";
  double const size = mesh.size(axis);
  double const unit = (size - 1) / size * static_cast<double>(layout.elements()) /
                      (axis == Axis::replica ? static_cast<double>(mesh.shard) : 1.0);
  return fmt::format("{:.4g} ({}-1)/{} Psi{}", static_cast<double>(sent) / unit, letter, letter,
                     both && axis == Axis::replica ? "/F" : "");
}

std::string kept_text(ShardPlan const& plan, std::string const& by) {
  StateLayout const& layout = plan.layout;
  std::string text = fmt::format("kept {}, in elements: parameters {}, gradients {}, optimizer state {} x {}", by,
                                 layout.parameter_elements(), plan.reductions.kept_elements(layout), layout.moments,
                                 layout.share_elements());
  if (layout.sharding.parameters)
    text += fmt::format(", slots for whole units {} x {}", plan.gathers.slots, layout.largest_unit());
  if (plan.reductions.fresh_gradients_apart)
    text += fmt::format(", fresh gradients {}", plan.reductions.fresh_elements());
  return text + "\n";
}

/// "kept per rank, in bytes: parameters 2 x 4096, ...": of mixed recipes.
std::string kept_bytes_text(ShardPlan const& plan, std::string const& by) {
  StateLayout const& layout = plan.layout;
  std::size_t const parameter = bytes_per_value(layout.types.parameters),
                    gradient = bytes_per_value(layout.types.gradients);
  Index const moments = layout.moments, copies = layout.types.gradient_copy ? 2 : 1;
  Index const kept = plan.reductions.kept_elements(layout);
  return fmt::format("kept {}, in bytes: parameters {} x {}, gradients {} x {}, optimizer state {} x {} (fp32: master "
                     "copy, {}{}), sum {}\n",
                     by, parameter, layout.parameter_elements(), gradient, kept, 4 * (moments + copies),
                     layout.share_elements(), plural(moments, "moment"), copies > 1 ? ", copy of the gradients" : "",
                     static_cast<Index>(parameter) * layout.parameter_elements() + static_cast<Index>(gradient) * kept +
                         4 * (moments + copies) * layout.share_elements());
}

std::string kept_by_all(StepWalk const& walk) {
  std::vector<std::pair<ShardPlan const*, std::string>> kinds{{&walk.plan(), "per rank"}};
  if (walk.layout().mesh.servers > 0)
    kinds = {{&walk.plan(), "by a worker"}, {&walk.plans.back(), "by a server"}};
  else if (walk.layout().ownership.owner(0)) {
    kinds.clear();
    for (ShardPlan const& plan : walk.plans) kinds.emplace_back(&plan, fmt::format("by rank {}", plan.layout.rank));
  }
  std::string text;
  for (auto const& [plan, by] : kinds) text += kept_text(*plan, by);
  if (walk.is_mixed())
    for (auto const& [plan, by] : kinds) text += kept_bytes_text(*plan, by);
  return text;
}

} // namespace

std::string strategy_title(std::string const& name, StepWalk const& walk) {
  StateLayout const& layout = walk.layout();
  std::string const mesh =
      layout.mesh.shard > 1 && layout.mesh.replica > 1
          ? fmt::format(" (F = {} in a shard group, R = {} replicas)", layout.mesh.shard, layout.mesh.replica)
      : layout.mesh.servers > 0 ? fmt::format(" (W = {}, K = {})", plural(layout.mesh.data(), "worker"),
                                              plural(layout.mesh.servers, "server"))
                                : "";
  return fmt::format("{} on {}{}, {}: one training step of a GPT with {}, Psi = {} parameters with padding", name,
                     plural(walk.ranks(), "rank"), mesh, plural(layout.topology.nodes(), "node"),
                     plural(walk.plan().parts.layers(), "block"), layout.elements());
}

std::string strategy_meaning(StepWalk const& walk) {
  StateLayout const& layout = walk.layout();
  if (layout.mesh.shard == 1) {
    std::string const text = "Every rank has all parameters, gradients and optimizer state, and updates all.";
    return text + (layout.main_device
                       ? " Rank 0 collects gradients; not shown is the data that it sends out on every step."
                       : "");
  }
  if (layout.mesh.servers > 0)
    return "Workers have all parameters and push their gradients. Every server owns a share of every group: it adds up "
           "its\nshare of the gradients, updates, and sends the new parameters to all workers.";
  bool const has_owners = layout.ownership.owner(0).has_value();
  std::string text = has_owners
                         ? "Every unit has one owner, who updates it.\nA rank keeps of units that are not its own no "
                           "optimizer state"
                         : "Every rank owns a share of every group and updates it; it keeps only that of the "
                           "optimizer state";
  if (has_owners) {
    if (layout.sharding.gradients) text += layout.sharding.parameters ? ", no gradients" : " and no gradients";
    if (layout.sharding.parameters)
      text += fmt::format(" and no parameters. They are copied into {} when parts need them",
                          plural(walk.plan().gathers.slots, "slot"));
    return text + ".";
  }
  if (layout.sharding.gradients) text += layout.sharding.parameters ? ", the gradients" : " and the gradients";
  if (layout.sharding.parameters)
    text += fmt::format(" and the parameters. Whole units are gathered into {} when parts need them",
                        plural(walk.plan().gathers.slots, "slot"));
  return text + ".";
}

std::string held_text(StepWalk const& walk, Index unit, UnitState const& state, Rank rank) {
  StateLayout const& layout = walk.layout();
  Rank const share = number_of_share(layout.mesh, rank);
  std::string text = holding_text(held_by(layout, unit, rank, StatePart::parameters, state.parameters), share) + "/" +
                     holding_text(held_by(layout, unit, rank, StatePart::gradient, state.gradient), share);
  if (walk.is_mixed()) text += "/" + holding_text(optimizer_held_by(layout, unit, rank), share);
  return text;
}

std::string collective_text(StepWalk const& walk, WalkedCollective const& collective) {
  return fmt::format("{} of {}{}: {}", kind_of(walk, collective.planned), collective.what,
                     root_text(walk, collective.planned), sent_text(collective, walk.is_mixed()));
}

std::string end_text(StepWalk const& walk, WalkedCollective const& collective) {
  char const* const when = collective.follows ? "then" : collective.waits ? "then, after one in flight" : "then starts";
  return fmt::format("{}: {}", when, collective_text(walk, collective));
}

std::string unit_names(StepWalk const& walk, std::vector<Index> const& units) {
  std::string names;
  for (Index const unit : units)
    names += (names.empty() ? "" : ", ") + walk.layout().units[static_cast<std::size_t>(unit)].name;
  return names;
}

std::string strategy_sums(StepWalk const& walk) {
  StateLayout const& layout = walk.layout();
  auto const psi = static_cast<double>(layout.elements());
  std::vector<std::vector<std::string>> rows{{"sent per rank in this step", "elements", "in Psi", ""}};
  std::vector<std::string> kinds;
  for (WalkedCollective const& collective : collectives_of(walk))
    if (std::string const kind = kind_of(walk, collective.planned); std::ranges::find(kinds, kind) == kinds.end())
      kinds.push_back(kind);
  auto const add = [&](std::string const& name, std::uint64_t sent, std::string const& units) {
    rows.push_back({name, std::to_string(sent), fmt::format("{:.4g}", static_cast<double>(sent) / psi), units});
  };
  for (std::string const& kind : kinds)
    add(kind, busiest(walk, [&](WalkedCollective const& one) { return kind_of(walk, one.planned) == kind; }), "");
  auto const sent_by = [&](std::size_t rank) {
    std::uint64_t sent = 0;
    for (WalkedCollective const& collective : collectives_of(walk)) sent += collective.traffic[rank].bytes;
    return sent;
  };
  if (layout.mesh.servers > 0) {
    add("sum of a worker", sent_by(0), "= Psi");
    add("sum of a server", sent_by(static_cast<std::size_t>(walk.ranks() - 1)), "= W/K Psi");
  }
  for (Axis const axis : {Axis::shard, Axis::replica}) {
    if (layout.mesh.size(axis) == 1 || layout.mesh.servers > 0) continue;
    std::uint64_t const sent = busiest(walk, [&](WalkedCollective const& one) { return one.planned.axis == axis; });
    add("sum" + axis_text(layout.mesh, axis), sent, "= " + in_units(layout, axis, sent));
  }
  std::string const nothing = "sent per rank in this step: nothing\n";
  return (kinds.empty() ? nothing : aligned(rows)) + kept_by_all(walk);
}

std::string strategy_text(std::string const& name, StepWalk const& walk) {
  std::string text = strategy_title(name, walk) + "\n" + strategy_meaning(walk) + "\n";
  text += "\nowned elements of every group: parameters, their gradients, their optimizer state\n" + owners_table(walk);
  text += fmt::format("\nA cell is parameters/gradient{}: \"all\" is the whole unit (of the gradient: summed over all "
                      "ranks), a number that share\nof it, {}\"own\" the gradient of this rank's micro-batch alone, "
                      "\">\" is on its way, \"-\" nothing; * is new.\n",
                      walk.is_mixed() ? "/optimizer state" : "",
                      walk.layout().ownership.owner(0) ? "\"copy\" what is dropped after use, " : "");
  for (std::size_t number = 0; number < walk.moments.size(); ++number) text += moment_text(walk, number);
  return text + "\n" + strategy_sums(walk);
}

} // namespace trainstone
