#include "parallel/program/timeline_player.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <utility>

namespace trainstone::Impl {

TimelinePlace::TimelinePlace(StepProgram const& program) {
  for (std::vector<Segment> const* const part : {&program.step, &program.update})
    for (Segment const& segment : *part)
      if (!segment.instructions.empty() && segment.times > 0) m_segments.push_back(&segment);
  TRAINSTONE_REQUIRE(!m_segments.empty(), "a program without instructions");
}

TimelinePlace::Border TimelinePlace::advance() {
  if (++m_next < segment().instructions.size()) return Border::none;
  m_next = 0;
  if (++m_time < segment().times) return Border::repetition;
  m_time = 0;
  if (++m_segment < m_segments.size()) return Border::segment;
  m_segment = 0;
  ++m_step;
  return Border::step;
}

namespace {

/// A server's program has, unit after unit, the waits for what is pushed, the update, and the start of its publication.
std::vector<UnitTurn> unit_turns(StepProgram const& program) {
  std::vector<UnitTurn> turns;
  UnitTurn turn;
  for (Segment const& segment : program.step)
    for (Instruction const& one : segment.instructions) {
      if (one.act == Act::wait && one.started == Act::reduce) turn.pushes.push_back(one);
      if (one.act == Act::update) turn.update = one;
      if (one.act != Act::publish) continue;
      turn.publish = one;
      turns.push_back(std::exchange(turn, {}));
    }
  return turns;
}

bool reduces(Instruction const& started) { return started.act == Act::reduce || started.act == Act::reduce_sums; }

} // namespace

TimelinePlayer::TimelinePlayer(StepProgram const& program, RankClass const& of, Advances progress, std::size_t number,
                               std::vector<std::size_t>& moved)
    : place(program), m_progress(progress), m_number(number), m_moved(&moved) {
  move();
  result.ranks = of;
  for (Segment const& segment : program.step)
    m_updates_units = m_updates_units || std::ranges::count(segment.instructions, Act::update, &Instruction::act) > 0;
  if (m_updates_units && of.serves()) m_units = unit_turns(program);
}

std::optional<std::size_t> TimelinePlayer::next_unit() const {
  if (!waits_for || waits_for->is_done() || waits_for->started.act != Act::reduce) return {};
  auto const has_come = [&](Instruction const& wait) {
    auto const push = m_works.find(key_of(wait.started, wait));
    return push == m_works.end() || push->second.is_done(); // not there: it was waited for
  };
  for (std::size_t number = 0; number < m_units.size(); ++number)
    if (!m_units[number].done && std::ranges::all_of(m_units[number].pushes, has_come)) return number;
  return {};
}

UnitTurn const& TimelinePlayer::take_unit(std::size_t number) {
  m_units[number].done = m_units[number].early = true;
  return m_units[number];
}

bool TimelinePlayer::was_done(Instruction const& instruction) {
  auto const is_of = [&](UnitTurn const& turn) { return instruction == turn.update || instruction == turn.publish; };
  auto const found = std::ranges::find_if(m_units, is_of);
  if (found == m_units.end()) return false;
  found->done = true;
  return found->early;
}

void TimelinePlayer::begin_step() {
  for (UnitTurn& turn : m_units) turn.done = turn.early = false;
}

TimedWork* TimelinePlayer::start(Instruction const& instruction, std::vector<CollectivePrice> collectives) {
  auto const [found, is_new] = m_works.try_emplace(key_of(instruction));
  TRAINSTONE_REQUIRE(is_new, "rank {} starts act {} of subject {} again before it has waited for it",
                     result.ranks.first, to_string(instruction.act), instruction.subject);
  TimedWork& work = found->second;
  work.started = instruction;
  work.collectives = std::move(collectives);
  work.begin = clock;
  if (work.is_done()) return nullptr;
  bool const queued =
      instruction.act == Act::reduce && (!m_queue.empty() || m_scratch_in_use.contains(instruction.slot));
  if (queued) {
    m_queue.push_back(&work);
    return nullptr;
  }
  if (reduces(instruction)) m_scratch_in_use.insert(instruction.slot);
  return &work;
}

TimedWork* TimelinePlayer::find(Act act, Instruction const& instruction) {
  auto const found = m_works.find(key_of(act, instruction));
  return found == m_works.end() ? nullptr : &found->second;
}

void TimelinePlayer::arrives(TimedWork& work, Nanoseconds time) {
  work.arrival = time;
  m_arriving.push_back(&work);
  move();
}

TimedWork* TimelinePlayer::next_arrival() const {
  auto const first = std::ranges::min_element(m_arriving, {}, &TimedWork::arrival);
  return first == m_arriving.end() ? nullptr : *first;
}

void TimelinePlayer::take(TimedWork& work) {
  std::erase(m_arriving, &work);
  work.called = work.arrival = never;
}

void TimelinePlayer::end(TimedWork& work) {
  ++work.next;
  if (work.is_done() && reduces(work.started)) m_scratch_in_use.erase(m_scratch_in_use.find(work.started.slot));
}

TimedWork* TimelinePlayer::next_of_queue() {
  if (m_queue.empty() || m_scratch_in_use.contains(m_queue.front()->started.slot)) return nullptr;
  TimedWork* const work = m_queue.front();
  m_queue.pop_front();
  m_scratch_in_use.insert(work->started.slot);
  return work;
}

Nanoseconds TimelinePlayer::port_free(PortUse use) const {
  if (use == PortUse::none) return 0;
  if (use == PortUse::out) return m_out_free;
  return use == PortUse::in ? m_in_free : std::max(m_out_free, m_in_free);
}

void TimelinePlayer::use_port(PortUse use, Nanoseconds until) {
  if (use == PortUse::none) return;
  if (use != PortUse::in) m_out_free = until;
  if (use != PortUse::out) m_in_free = until;
}

Nanoseconds TimelinePlayer::next_event() const {
  if (works_on || next_unit()) return clock;
  TimedWork const* const first = computes ? next_interruption() : next_arrival();
  Nanoseconds const arrival = first ? std::max(clock, first->arrival) : never;
  if (computes) return std::min(arrival, clock + left);
  bool const waits = waits_for && !waits_for->is_done();
  return waits ? arrival : clock;
}

void TimelinePlayer::append_state(std::vector<Index>& state, Nanoseconds origin) const {
  auto const relative = [&](Nanoseconds time) { return time == never ? never : time - origin; };
  auto const append = [&](TimedWork const& work) {
    Instruction const& one = work.started;
    Index const number = one.micro_batch == Instruction::none ? one.micro_batch : one.micro_batch - place.time();
    state.insert(state.end(), {static_cast<Index>(one.act), one.subject, number, one.slot, one.piece,
                               static_cast<Index>(work.next), relative(work.called), relative(work.arrival)});
  };
  state.insert(state.end(),
               {static_cast<Index>(place.segment_number()), static_cast<Index>(place.next()), clock - origin,
                std::max(m_out_free, clock) - origin, std::max(m_in_free, clock) - origin, Index{computes}, left});
  for (auto const& [key, work] : m_works) append(work);
  for (TimedWork const* const work : m_arriving) append(*work);
  for (TimedWork const* const work : m_queue) append(*work);
  for (TimedWork const* const work : {waits_for, works_on})
    if (work) append(*work);
}

void TimelinePlayer::shift(Nanoseconds time, Index micro_batches) {
  move();
  clock += time;
  m_out_free += time;
  m_in_free += time;
  instruction_begin += time;
  place.skip(micro_batches);
  std::map<Key, TimedWork> later_works;
  while (!m_works.empty()) {
    auto node = m_works.extract(m_works.begin()); // the work itself stays where it is
    TimedWork& work = node.mapped();
    work.begin += time;
    for (Nanoseconds* const one : {&work.called, &work.arrival})
      if (*one != never) *one += time;
    work.started = later(work.started, micro_batches);
    node.key() = key_of(work.started);
    later_works.insert(std::move(node));
  }
  m_works = std::move(later_works);
}

} // namespace trainstone::Impl
