#include "parallel/program/step_simulator.hpp"

#include "core/error.hpp"
#include "parallel/program/program_cursor.hpp"
#include "parallel/program/simulated_lines.hpp"
#include "parallel/program/simulated_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

namespace trainstone {

namespace {

using Impl::channel_of;
using Impl::Cursor;
using Impl::FoundDefect;
using Impl::GradientCell;
using Impl::is_message;
using Impl::line_name;
using Impl::line_of_collective;
using Impl::line_of_ends;
using Impl::LineName;
using Impl::lines_of;
using Impl::meaning_of;
using Impl::Section;
using Impl::SimulatedRank;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

struct Work;

/// A collective, while its members come.
struct Meeting {
  Instruction first; ///< of the member that came first
  Rank first_rank;
  std::size_t step;
  std::vector<Work*> members; ///< by index in the line
  std::size_t came = 0;
};

/// What a rank has started: one collective after another.
struct Work {
  explicit Work(Instruction const& start) : instruction(start), meaning(start) {}

  Instruction instruction;
  Instruction meaning; ///< what all members must mean: of a receive, the send that it meets
  std::vector<std::pair<LineName, std::optional<PlannedCollective>>> steps;
  std::size_t step = 0; ///< the number of collectives that have ended
  bool begun = false;   ///< the collective `step`
  bool queued = false;  ///< its first collective begins when an earlier one leaves it its scratch
  Index version = 0;    ///< of parameters

  bool is_done() const { return step == steps.size(); }
};

struct Line {
  std::vector<Rank> members;
  std::deque<Meeting> meetings;
  std::vector<std::size_t> next; ///< by member: how many it has started
};

/// What tells one start of a rank from another.
using Key = std::tuple<Act, Index, Index, Index, Index>;
Key key_of(Act act, Instruction const& instruction) {
  return {act, instruction.subject, instruction.micro_batch, instruction.slot, instruction.piece};
}

struct Player {
  explicit Player(ShardPlan const& plan, StepProgram const& program) : state(plan), cursor(program) {}
  Rank rank() const { return state.rank(); }

  SimulatedRank state;
  Cursor cursor;
  std::map<Key, std::unique_ptr<Work>> works; ///< that nobody has waited for
  std::deque<Work*> lane;                     ///< reductions, in order
};

class Simulation {
public:
  Simulation(std::vector<ShardPlan> const& plans, std::vector<StepProgram> const& programs) {
    for (std::size_t rank = 0; rank < plans.size(); ++rank) m_players.emplace_back(plans[rank], programs[rank]);
    for (Player& player : m_players) {
      for (LineName const& line : lines_of(player.state.plan())) add_to(line, player.rank());
    }
  }

  void play() {
    bool unfinished = true;
    while (unfinished) {
      bool moved = false;
      unfinished = false;
      for (Player& player : m_players) {
        while (!player.cursor.is_at_end() && play_one(player)) moved = true;
        unfinished = unfinished || !player.cursor.is_at_end();
      }
      if (unfinished && !moved) fail_waiting();
    }
    for (Player& player : m_players) {
      require_all_waited(player);
      player.state.require_played();
    }
  }

private:
  void add_to(LineName const& name, Rank rank) {
    Line& line = m_lines[name];
    line.members.push_back(rank);
    line.next.push_back(0);
  }

  /// \return whether the rank has gone on
  bool play_one(Player& player) {
    Instruction const instruction = player.cursor.instruction();
    if (!execute(player, instruction)) return false;
    Section const section = player.cursor.section();
    if (player.cursor.advance()) player.state.end_section(section, instruction);
    return true;
  }

  bool execute(Player& player, Instruction const& instruction) {
    SimulatedRank& state = player.state;
    state.require_well_formed(instruction);
    switch (instruction.act) {
    case Act::load:
      if (player.state.plan().layout.main_device && !meet(player, instruction, LineName())) return false;
      state.load(instruction);
      return true;
    case Act::forward: state.forward(instruction); return true;
    case Act::recompute: state.recompute(instruction); return true;
    case Act::loss: state.loss(instruction); return true;
    case Act::backward: state.backward(instruction); return true;
    case Act::fold: state.fold(instruction); return true;
    case Act::accumulate: state.accumulate(instruction); return true;
    case Act::tie:
      if (player.state.plan().pipeline.table && !meet(player, instruction, line_of_ends(player.state.plan())))
        return false;
      state.tie(instruction);
      return true;
    case Act::update: state.update(instruction); return true;
    case Act::agree:
      if (!meet(player, instruction, LineName())) return false;
      state.agree(instruction);
      return true;
    case Act::norm:
      if (!meet(player, instruction, LineName())) return false;
      state.norm(instruction);
      return true;
    case Act::send:
    case Act::receive:
    case Act::exchange:
    case Act::fetch:
    case Act::gather:
    case Act::publish:
    case Act::reduce:
    case Act::reduce_sums: start(player, instruction); return true;
    case Act::wait: return wait(player, instruction);
    }
    return true;
  }

  /// The ranks of a line meet. A rank starts when it reaches the instruction, and goes on when all have come.
  /// \return whether all have come
  bool meet(Player& player, Instruction const& instruction, LineName const& line) {
    auto& slot = player.works[key_of(instruction.act, instruction)];
    if (!slot) {
      slot = std::make_unique<Work>(instruction);
      slot->steps.emplace_back(line, std::nullopt);
      begin(player, *slot);
    }
    if (!slot->is_done()) return false;
    player.works.erase(key_of(instruction.act, instruction));
    return true;
  }

  void start(Player& player, Instruction const& instruction) {
    ShardPlan const& plan = player.state.plan();
    bool const publishes = instruction.act == Act::publish;
    if (publishes && player.state.is_published(instruction.subject)) return;
    if (player.works.contains(key_of(instruction.act, instruction)))
      player.state.fail(StepDefect::never_waited, instruction, "it was started before, and nothing has waited for it");
    auto work = std::make_unique<Work>(instruction);
    if (instruction.act == Act::gather || publishes) work->version = player.state.version(instruction.subject);
    player.state.begin(instruction);
    if (is_message(instruction.act)) {
      work->steps.emplace_back(channel_of(instruction, plan), std::nullopt);
      work->meaning = meaning_of(instruction, plan);
    } else if (instruction.act == Act::exchange) {
      work->steps.emplace_back(line_name(plan.tensor.exchanges.at(exchange_of(instruction)).collective.axis, plan),
                               std::nullopt);
    } else if (instruction.act == Act::gather || publishes) {
      if (auto const& gathers = plan.gathers.of_unit[at(instruction.subject)]; !gathers.empty()) // all at once
        work->steps.emplace_back(line_of_collective(instruction, Axis::shard, plan), gathers.front().planned);
    } else if (instruction.act != Act::fetch) { // which meets nobody
      for (PlannedCollective const& step :
           plan.reductions.reduction_of(plan.reductions.buckets.bucket(instruction.subject), plan.layout))
        if (plan.reductions.is_of_sums(step) == (instruction.act == Act::reduce_sums))
          work->steps.emplace_back(line_of_collective(instruction, step.axis, plan), step);
    }
    Work& started = *work;
    player.works.emplace(key_of(instruction.act, instruction), std::move(work));
    started.queued = lacks_scratch(player, started);
    if (instruction.act == Act::reduce) player.lane.push_back(&started);
    require_order(player, started);
    if (!started.queued) begin(player, started);
    progress(player);
  }

  /// Whether an earlier reduction may still use the scratch, or wait for scratch. This is a matter of timing. Only
  /// reductions in place may wait for scratch.
  static bool lacks_scratch(Player const& player, Work const& work) {
    auto const is_gather = [](Act act) { return act == Act::gather || act == Act::publish; };
    Instruction const& mine = work.instruction;
    auto const has_own = [](Act act) { return is_message(act) || act == Act::exchange || act == Act::fetch; };
    if (has_own(mine.act)) return false;
    bool lacks = false;
    for (auto const& [key, other] : player.works) {
      if (has_own(other->instruction.act)) continue;
      if (other.get() == &work || is_gather(other->instruction.act) != is_gather(mine.act)) continue;
      bool const in_use = other->instruction.slot == mine.slot;
      lacks = lacks || in_use || other->queued;
      if (in_use && (mine.act != Act::reduce || player.state.plan().reductions.fresh_gradients_apart))
        player.state.fail(StepDefect::written_while_used, mine,
                          fmt::format("\"{}\" uses its scratch", to_string(other->instruction, player.state.plan())));
    }
    return lacks && mine.act == Act::reduce;
  }

  /// Timing decides when a later collective of a reduction begins, or one that waits for scratch. Such collectives keep
  /// their order among each other. Nothing else may start in their communicator meanwhile.
  static void require_order(Player const& player, Work const& work) {
    auto const floats = [](Work const& of, std::size_t step) { return step > 0 || of.queued; };
    for (auto const& [key, other] : player.works)
      for (std::size_t theirs = 0; other.get() != &work && theirs < other->steps.size(); ++theirs)
        for (std::size_t mine = 0; mine < work.steps.size(); ++mine)
          if (floats(*other, theirs) && other->steps[theirs].first == work.steps[mine].first &&
              !(floats(work, mine) && mine == theirs))
            player.state.fail(StepDefect::order_by_timing, work.instruction,
                              fmt::format("it is not known whether it starts before a collective of \"{}\"",
                                          to_string(other->instruction, player.state.plan())));
  }

  /// Begins the next collective of a work.
  void begin(Player& player, Work& work) {
    if (work.is_done()) return;
    work.begun = true;
    Line& line = m_lines.at(work.steps[work.step].first);
    auto const mine = static_cast<std::size_t>(std::ranges::find(line.members, player.rank()) - line.members.begin());
    std::size_t const number = line.next[mine]++;
    if (number == line.meetings.size())
      line.meetings.push_back({work.meaning, player.rank(), work.step, std::vector<Work*>(line.members.size())});
    Meeting& meeting = line.meetings[number];
    if (!(meeting.first == work.meaning) || meeting.step != work.step)
      player.state.fail(StepDefect::other_order, work.instruction,
                        fmt::format("rank {} starts \"{}\" as the {}. collective of their communicator",
                                    meeting.first_rank, to_string(meeting.first, player.state.plan()), number + 1));
    meeting.members[mine] = &work;
    if (++meeting.came == line.members.size()) complete(line, meeting);
  }

  void complete(Line& line, Meeting& meeting) {
    std::vector<Player*> players;
    for (Rank const rank : line.members) players.push_back(&m_players[at(rank)]);
    Act const act = meeting.first.act;
    if (act == Act::gather || act == Act::publish) require_one_version(meeting, players);
    if (act == Act::reduce || act == Act::reduce_sums) add_up(meeting, players);
    std::vector<Work*> const members = std::move(meeting.members);
    for (Work* const work : members) {
      ++work->step;
      work->begun = false;
    }
    for (Player* const player : players) progress(*player);
  }

  static void require_one_version(Meeting const& meeting, std::vector<Player*> const& players) {
    for (std::size_t i = 1; i < players.size(); ++i)
      if (meeting.members[i]->version != meeting.members[0]->version)
        players[i]->state.fail(StepDefect::old_parameters, meeting.first,
                               "the owners' parameters are not all of one version");
  }

  /// Puts into the memory of all members what a collective of a reduction leaves there.
  static void add_up(Meeting const& meeting, std::vector<Player*> const& players) {
    PlannedCollective const& planned = *meeting.members[0]->steps[meeting.step].second;
    bool const of_sums = meeting.first.act == Act::reduce_sums;
    std::vector<std::vector<GradientCell*>> cells;
    for (Player* const player : players) cells.push_back(player->state.cells_of(meeting.first.subject));
    for (std::size_t part = 0; part < cells[0].size(); ++part) {
      auto const values = [&](std::size_t member) -> std::vector<Impl::ContributionSum>& {
        return of_sums ? cells[member][part]->sums : cells[member][part]->fresh;
      };
      for (std::size_t slice = 0; slice < values(0).size(); ++slice) {
        Rank const owner = players[0]->state.owner(cells[0][part]->group, slice);
        if (planned.axis == Axis::replica && owner != players[0]->state.plan().layout.member()) continue; // not sent
        Impl::ContributionSum sum = Impl::ContributionSum::nothing();
        for (std::size_t member = 0; member < players.size(); ++member)
          if (!players[member]->state.plan().layout.serves()) sum += values(member)[slice];
        auto const root = static_cast<std::size_t>(planned.problem.root);
        Impl::ContributionSum const of_root = values(std::min(root, players.size() - 1))[slice];
        for (std::size_t member = 0; member < players.size(); ++member) switch (planned.problem.collective) {
          case Collective::all_reduce: values(member)[slice] = sum; break;
          case Collective::server_push:
          case Collective::reduce_scatter:
            values(member)[slice] = owner == static_cast<Rank>(member) ? sum : Impl::ContributionSum();
            break;
          case Collective::reduce: values(member)[slice] = member == root ? sum : Impl::ContributionSum(); break;
          case Collective::broadcast: values(member)[slice] = of_root; break;
          default: throw Error(fmt::format("{} adds up no gradients", to_string(planned.problem.collective)));
          }
      }
    }
  }

  /// Begins the later collectives of the oldest reduction, and the reductions that have waited for scratch.
  void progress(Player& player) {
    while (!player.lane.empty()) {
      Work& oldest = *player.lane.front();
      if (oldest.queued) {
        oldest.queued = false;
        begin(player, oldest);
        return; // which has gone on with the rest
      }
      if (oldest.begun) return;
      if (!oldest.is_done()) return begin(player, oldest);
      player.lane.pop_front();
    }
  }

  bool wait(Player& player, Instruction const& instruction) {
    bool const publishes = instruction.started == Act::publish;
    if (publishes && player.state.is_published(instruction.subject) && !player.state.is_under_way(instruction.subject))
      return true;
    auto const found = player.works.find(key_of(instruction.started, instruction));
    if (found == player.works.end() && player.state.was_pushed(instruction)) return true;
    if (found == player.works.end()) player.state.fail(StepDefect::not_started, instruction, "it has not been started");
    if (!found->second->is_done()) return false;
    player.state.end(instruction);
    std::erase(player.lane, found->second.get());
    player.works.erase(found);
    return true;
  }

  [[noreturn]] void fail_waiting() const {
    for (Player const& player : m_players)
      if (!player.cursor.is_at_end())
        player.state.fail(StepDefect::waits_for_ever, player.cursor.instruction(), "another rank never comes");
    throw Error("nobody waits");
  }

  static void require_all_waited(Player const& player) {
    for (auto const& [key, work] : player.works)
      player.state.fail(StepDefect::never_waited, work->instruction, "nothing waits for it");
  }

  std::deque<Player> m_players;
  std::map<LineName, Line> m_lines;
};

} // namespace

std::string_view to_string(StepDefect defect) {
  switch (defect) {
  case StepDefect::undefined_read: return "undefined read";
  case StepDefect::old_parameters: return "old parameters";
  case StepDefect::written_while_used: return "written while used";
  case StepDefect::waits_for_ever: return "waits for ever";
  case StepDefect::not_started: return "not started";
  case StepDefect::never_waited: return "never waited";
  case StepDefect::other_order: return "other order";
  case StepDefect::order_by_timing: return "order by timing";
  case StepDefect::never_read: return "never read";
  case StepDefect::incomplete: return "incomplete";
  case StepDefect::malformed: return "malformed";
  case StepDefect::missing_contribution: return "missing contribution";
  case StepDefect::doubled_contribution: return "doubled contribution";
  }
  return "unknown";
}

std::optional<StepFinding> find_step_defect(std::vector<ShardPlan> const& plans,
                                            std::vector<StepProgram> const& programs) {
  TRAINSTONE_REQUIRE(plans.size() == programs.size(), "{} plans, {} programs", plans.size(), programs.size());
  try {
    Simulation(plans, programs).play();
  } catch (FoundDefect const& found) {
    return found.finding;
  }
  return std::nullopt;
}

} // namespace trainstone
