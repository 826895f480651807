#include "train/checkpoint/collected_parameters.hpp"

#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "core/host_copy.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace trainstone {

namespace {

/// So many elements travel at a time: few beside what files take on the first rank.
constexpr Index sent_at_a_time = Index{1} << 14;

/// Part of a group, as fp32 in host memory that is there already.
std::span<float const> copy_part(ExecutionSpace const& exec, ConstStoredVector part, std::span<float> out) {
  char const* const reason = "trainstone::train::collect_parameters: they go to a file";
  std::span<float> const values = out.first(static_cast<std::size_t>(part.size));
  if (part.storage == Storage::fp32)
    copy_to_host<float const>(exec, part.as<float>(), values, reason);
  else
    std::ranges::copy(copy_to_host(exec, part, reason), values.begin());
  return values;
}

/// The message of a part: number of the group, first element, values.
using PartHead = std::array<Index, 2>;

std::string message_of(PartHead const& head, std::span<float const> values) {
  std::string text(sizeof(PartHead) + values.size_bytes(), '\0');
  std::memcpy(text.data(), head.data(), sizeof(PartHead));
  std::memcpy(text.data() + sizeof(PartHead), values.data(), values.size_bytes());
  return text;
}

void take_message(std::string const& text, TakeParameters const& take) {
  PartHead head;
  std::memcpy(head.data(), text.data(), sizeof(PartHead));
  std::vector<float> values((text.size() - sizeof(PartHead)) / sizeof(float));
  std::memcpy(values.data(), text.data() + sizeof(PartHead), values.size() * sizeof(float));
  take(head[0], head[1], values);
}

/// What a rank does with its groups. An error is kept to the end, because other ranks wait for this one.
class Collector {
public:
  /// \param[in] line  the stages, if parameters come along this rank's line; else null
  Collector(ExecutionSpace const& exec, StateLayout const& layout, Communicator* line, std::span<float> room,
            TakeParameters const& take)
      : m_exec(exec), m_layout(&layout), m_line(line), m_room(room), m_take(&take) {
    if (!line) return;
    if (layout.rank > 0) m_sent.resize(static_cast<std::size_t>(sent_at_a_time));
    m_most_groups = std::ranges::max(all_gather_values(*line, static_cast<Index>(std::ssize(layout.groups))));
  }

  void add(Index group, ConstStoredVector whole) {
    Index const number = m_layout->groups[static_cast<std::size_t>(group)].number;
    ++m_groups;
    if (m_layout->rank == 0) keep_error([&] { take_own(number, whole); });
    if (!m_line) return;
    bool const is_sent = m_layout->rank > 0 && m_layout->counts(group);
    stream(number, whole, is_sent ? m_layout->groups[static_cast<std::size_t>(group)].end() : 0);
  }

  /// Other stages may have more groups. \throws what an earlier call has kept
  void finish() {
    for (; m_groups < m_most_groups; ++m_groups) stream(0, {}, 0);
    if (m_problem) std::rethrow_exception(m_problem);
  }

private:
  void take_own(Index number, ConstStoredVector whole) {
    auto const room = static_cast<Index>(m_room.size());
    for (Index first = 0; first < whole.size; first += room)
      (*m_take)(number, first, copy_part(m_exec, whole.part(first, std::min(room, whole.size - first)), m_room));
  }

  /// Brings the first elements of a group to the first stage, and takes the elements of other stages there.
  void stream(Index number, ConstStoredVector whole, Index elements) {
    Index first = 0;
    auto const next = [&] {
      std::string text;
      if (first == elements) return text;
      keep_error([&] {
        ConstStoredVector const part = whole.part(first, std::min(sent_at_a_time, elements - first));
        text = message_of({number, first}, copy_part(m_exec, part, m_sent));
        first += part.size;
      });
      return text;
    };
    stream_to_first(*m_line, next, [&](std::string const& text) { keep_error([&] { take_message(text, *m_take); }); });
  }

  void keep_error(std::function<void()> const& work) {
    if (m_problem) return;
    try {
      work();
    } catch (...) {
      m_problem = std::current_exception();
    }
  }

  ExecutionSpace m_exec;
  StateLayout const* m_layout;
  Communicator* m_line;
  std::span<float> m_room;
  TakeParameters const* m_take;
  std::vector<float> m_sent;
  Index m_groups = 0;      ///< that were added
  Index m_most_groups = 0; ///< of a stage in the line; 0 without a line
  std::exception_ptr m_problem;
};

} // namespace

void collect_parameters(ExecutionSpace const& exec, ShardedEngine& engine, std::span<float> room,
                        TakeParameters const& take) {
  StateLayout const& layout = engine.plan().layout;
  TRAINSTONE_REQUIRE(layout.rank > 0 || !room.empty(), "there is no room for parameters on the first rank");
  bool const in_line = layout.mesh.pipeline > 1 && layout.mesh.rank_at(Axis::pipeline, layout.rank, 0) == 0;
  Collector collector(exec, layout, in_line ? &engine.communicators().of(Axis::pipeline) : nullptr, room, take);
  engine.read_parameters([&](Index group, ConstStoredVector whole) { collector.add(group, whole); });
  collector.finish();
}

} // namespace trainstone
