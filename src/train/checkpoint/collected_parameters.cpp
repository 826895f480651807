#include "train/checkpoint/collected_parameters.hpp"

#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "model/parameter_runs.hpp"

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

/// The message of some elements: the group, a number of runs, the begin and the size of each, and their values.
struct Message {
  Index number; ///< of the group
  std::vector<Range> runs;
  std::vector<float> values;

  std::string text() const {
    std::string text;
    auto const append = [&](void const* data, std::size_t bytes) {
      text.append(static_cast<char const*>(data), bytes);
    };
    std::array const head{number, static_cast<Index>(std::ssize(runs))};
    append(head.data(), sizeof(head));
    append(runs.data(), runs.size() * sizeof(Range));
    append(values.data(), values.size() * sizeof(float));
    return text;
  }
  explicit Message(std::string const& text) {
    std::array<Index, 2> head;
    std::memcpy(head.data(), text.data(), sizeof(head));
    number = head[0];
    runs.resize(static_cast<std::size_t>(head[1]));
    std::memcpy(runs.data(), text.data() + sizeof(head), runs.size() * sizeof(Range));
    std::size_t const begin = sizeof(head) + runs.size() * sizeof(Range);
    values.resize((text.size() - begin) / sizeof(float));
    std::memcpy(values.data(), text.data() + begin, values.size() * sizeof(float));
  }
  explicit Message(Index of) : number(of) {}
};

void take_message(Message const& message, TakeParameters const& take) {
  std::span<float const> values = message.values;
  for (Range const& run : message.runs) {
    auto const size = static_cast<std::size_t>(run.size());
    take(message.number, run.begin, values.first(size));
    values = values.subspan(size);
  }
}

/// What a rank does with its groups. An error is kept to the end, because other ranks wait for this one.
class Collector {
public:
  /// \param[in] line  the ranks whose parameters come to rank 0, if this is one of them; else null
  Collector(ExecutionSpace const& exec, ShardedEngine const& engine, Communicator* line, std::span<float> room,
            TakeParameters const& take)
      : m_exec(exec),
        m_layout(&engine.plan().layout),
        m_table(&engine.table()),
        m_line(line),
        m_room(room),
        m_take(&take) {
    if (!line) return;
    if (m_layout->rank > 0) m_sent.resize(static_cast<std::size_t>(sent_at_a_time));
    m_most_groups = std::ranges::max(all_gather_values(*line, static_cast<Index>(std::ssize(m_layout->groups))));
  }

  void add(Index group, ConstStoredVector whole) {
    ++m_groups;
    if (m_layout->rank == 0) keep_error([&] { take_own(group, whole); });
    if (m_line) stream(group, whole, m_layout->rank > 0 ? of(group).end() : 0);
  }

  /// Other stages may have more groups. \throws what an earlier call has kept
  void finish() {
    for (; m_groups < m_most_groups; ++m_groups) stream(0, {}, 0);
    if (m_problem) std::rethrow_exception(m_problem);
  }

private:
  ParameterGroup const& of(Index group) const { return m_layout->groups[static_cast<std::size_t>(group)]; }
  std::vector<GroupRun> runs_of(Index group, Range const& part) const {
    return group_runs(*m_table, group, part,
                      [&](ParameterTensor const& tensor) { return m_layout->counts(group, tensor); });
  }

  void take_own(Index group, ConstStoredVector whole) {
    auto const room = static_cast<Index>(m_room.size());
    for (Index first = 0; first < whole.size; first += room) {
      Range const part{first, std::min(first + room, whole.size)};
      std::span<float const> const values = copy_part(m_exec, whole.part(first, part.size()), m_room);
      for (auto const& [in_group, in_whole] : runs_of(group, part))
        (*m_take)(
            of(group).number, in_whole.begin,
            values.subspan(static_cast<std::size_t>(in_group - first), static_cast<std::size_t>(in_whole.size())));
    }
  }

  /// Brings the first elements of a group to rank 0, and takes the elements of other ranks there.
  void stream(Index group, ConstStoredVector whole, Index elements) {
    Index first = 0;
    auto const next = [&] {
      std::string text;
      keep_error([&] {
        while (first < elements && text.empty()) {
          Range const part{first, std::min(first + sent_at_a_time, elements)};
          text = text_of(group, whole, part);
          first = part.end;
        }
      });
      return text;
    };
    stream_to_first(*m_line, next,
                    [&](std::string const& text) { keep_error([&] { take_message(Message(text), *m_take); }); });
  }

  /// Empty if this rank counts none of the elements.
  std::string text_of(Index group, ConstStoredVector whole, Range const& part) {
    std::vector<GroupRun> const runs = runs_of(group, part);
    if (runs.empty()) return "";
    std::span<float const> const values = copy_part(m_exec, whole.part(part.begin, part.size()), m_sent);
    Message message(of(group).number);
    for (auto const& [in_group, in_whole] : runs) {
      auto const begin = values.begin() + (in_group - part.begin);
      message.runs.push_back(in_whole);
      message.values.insert(message.values.end(), begin, begin + in_whole.size());
    }
    return message.text();
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
  ParameterTable const* m_table;
  Communicator* m_line;
  std::span<float> m_room;
  TakeParameters const* m_take;
  std::vector<float> m_sent;
  Index m_groups = 0;      ///< that were added
  Index m_most_groups = 0; ///< of a rank in the line; 0 without a line
  std::exception_ptr m_problem;
};

} // namespace

void collect_parameters(ExecutionSpace const& exec, ShardedEngine& engine, std::span<float> room,
                        TakeParameters const& take) {
  StateLayout const& layout = engine.plan().layout;
  TRAINSTONE_REQUIRE(layout.rank > 0 || !room.empty(), "there is no room for parameters on the first rank");
  bool const in_line = layout.mesh.data_index(layout.rank) == 0;
  Collector collector(exec, engine, in_line ? engine.communicators().of_model() : nullptr, room, take);
  engine.read_parameters([&](Index group, ConstStoredVector whole) { collector.add(group, whole); });
  collector.finish();
}

} // namespace trainstone
