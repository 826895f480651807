#include "parallel/pipeline/pipeline_search.hpp"

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_bound.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

constexpr std::size_t most_states_of_a_key = 32;

/// A stage while operations are put into its order.
struct PartialStage {
  StageOrder order;
  Index forwards = 0, backwards = 0;
  Ticks clock = 0;
  std::vector<Ticks> forward_end, backward_end; ///< by micro-batch
};

struct Candidate {
  ChunkAct act;
  Index stage;
  Ticks begin;
  Ticks end;
};

class Search {
public:
  Search(PipelineShape const& shape, PipelinePrices const& prices, PipelineSearchLimits const& limits)
      : m_shape(shape),
        m_limits(limits),
        m_slots(limits.slots > 0 ? limits.slots : shape.micro_batches),
        m_bound(std::max(pipeline_bound(shape, false, prices), slots_bound(shape, prices, m_slots))),
        m_stages(at(shape.stages)) {
    for (Index stage = 0; stage < shape.stages; ++stage) {
      m_forward.push_back(prices.of(shape, false, StageAct::forward, stage, 0));
      m_backward.push_back(prices.of(shape, false, StageAct::backward, stage, 0));
      m_tail.push_back(stage == 0 ? 0 : m_tail.back() + m_backward[at(stage - 1)]);
    }
  }

  PipelineSearchResult run(PipelinePrices const& prices) {
    try_known_orders(prices);
    if (m_best > m_bound) descend();
    PipelineSearchResult result{.orders = m_known_orders, .time = m_known_time};
    result.least = m_cut_off ? m_bound : m_best;
    result.cut_off = m_cut_off;
    result.steps = m_steps;
    if (m_best_orders.empty()) return result;
    // The program of an order waits where the search does not: for the gradient buffer that is being sent.
    Ticks const time = play_pipeline(make_pipeline_program(m_shape, m_best_orders), prices).time;
    if (time < m_known_time) {
      result.time = time;
      result.orders = m_best_orders;
    }
    return result;
  }

private:
  /// 1F1B with all warm-ups that the slots allow, and so naive and GPipe, too.
  void try_known_orders(PipelinePrices const& prices) {
    for (Index step = 0; step <= m_shape.micro_batches; ++step) {
      std::vector<StageOrder> orders;
      for (Index stage = 0; stage < m_shape.stages; ++stage) {
        Index const warm_up = std::min(m_slots - 1, step * (m_shape.stages - 1 - stage));
        orders.push_back(warmed_up(std::min(warm_up, m_shape.micro_batches)));
      }
      Ticks const time = play_pipeline(make_pipeline_program(m_shape, orders), prices).time;
      if (time < m_known_time) {
        m_known_time = time;
        m_known_orders = orders;
      }
    }
    m_best = m_known_time;
  }

  StageOrder warmed_up(Index warm_up) const {
    StageOrder order;
    Index forwards = 0;
    for (; forwards < warm_up; ++forwards) order.push_back({ChunkAct::forward, forwards});
    for (Index j = 0; j < m_shape.micro_batches; ++j) {
      if (forwards < m_shape.micro_batches) order.push_back({ChunkAct::forward, forwards++});
      order.push_back({ChunkAct::backward, j});
    }
    return order;
  }

  std::optional<Candidate> next_forward(Index stage) const {
    PartialStage const& own = m_stages[at(stage)];
    Index const j = own.forwards;
    if (j == m_shape.micro_batches || j - own.backwards == m_slots) return std::nullopt;
    if (stage > 0 && m_stages[at(stage - 1)].forwards <= j) return std::nullopt;
    Ticks const begin = std::max(own.clock, stage > 0 ? m_stages[at(stage - 1)].forward_end[at(j)] : 0);
    return Candidate{ChunkAct::forward, stage, begin, begin + m_forward[at(stage)]};
  }

  std::optional<Candidate> next_backward(Index stage) const {
    PartialStage const& own = m_stages[at(stage)];
    Index const j = own.backwards;
    bool const is_last = stage + 1 == m_shape.stages;
    if (own.forwards <= j || (!is_last && m_stages[at(stage + 1)].backwards <= j)) return std::nullopt;
    Ticks const begin = std::max(own.clock, is_last ? 0 : m_stages[at(stage + 1)].backward_end[at(j)]);
    return Candidate{ChunkAct::backward, stage, begin, begin + m_backward[at(stage)]};
  }

  /// The operation that can end first decides the stage. Any operation of this stage that can begin before that end may
  /// be next: so all orders are tried in which no operation could be earlier without delaying another one. One of them
  /// is among the fastest. Source: Algorithms for Solving Production-Scheduling Problems (Giffler and Thompson).
  std::vector<Candidate> candidates() const {
    std::optional<Candidate> first;
    for (Index stage = 0; stage < m_shape.stages; ++stage)
      for (auto const& one : {next_backward(stage), next_forward(stage)})
        if (one && (!first || one->end < first->end)) first = one;
    std::vector<Candidate> next;
    if (!first) return next;
    for (auto const& one : {next_backward(first->stage), next_forward(first->stage)})
      if (one && (one->begin < first->end || one->act == first->act)) next.push_back(*one);
    return next;
  }

  void put(Candidate const& one) {
    PartialStage& stage = m_stages[at(one.stage)];
    bool const is_forward = one.act == ChunkAct::forward;
    stage.order.push_back({one.act, is_forward ? stage.forwards++ : stage.backwards++});
    (is_forward ? stage.forward_end : stage.backward_end).push_back(one.end);
    stage.clock = one.end;
  }

  void take_back(Candidate const& one, Ticks clock) {
    PartialStage& stage = m_stages[at(one.stage)];
    bool const is_forward = one.act == ChunkAct::forward;
    stage.order.pop_back();
    --(is_forward ? stage.forwards : stage.backwards);
    (is_forward ? stage.forward_end : stage.backward_end).pop_back();
    stage.clock = clock;
  }

  /// No way to complete the orders takes less.
  Ticks least() const {
    Ticks least = 0, arrival = 0; // of the next forward, at the earliest
    for (Index stage = 0; stage < m_shape.stages; ++stage) {
      PartialStage const& own = m_stages[at(stage)];
      Index const forwards = m_shape.micro_batches - own.forwards, backwards = m_shape.micro_batches - own.backwards;
      if (stage > 0 && forwards > 0 && m_stages[at(stage - 1)].forwards > own.forwards)
        arrival = m_stages[at(stage - 1)].forward_end[at(own.forwards)];
      bool const waits = forwards > 0 && own.forwards == own.backwards;
      Ticks const begin = waits ? std::max(own.clock, arrival) : own.clock;
      if (backwards > 0)
        least = std::max(least, begin + forwards * m_forward[at(stage)] + backwards * m_backward[at(stage)] +
                                    m_tail[at(stage)]);
      arrival = std::max(own.clock, arrival) + m_forward[at(stage)];
    }
    return least;
  }

  /// Whether the same operations have been put into orders before, with everything at least as early.
  bool is_known() {
    std::vector<Index> key;
    std::vector<Ticks> times;
    for (Index stage = 0; stage < m_shape.stages; ++stage) {
      PartialStage const& own = m_stages[at(stage)];
      key.insert(key.end(), {own.forwards, own.backwards});
      times.push_back(own.clock);
      Index const read = stage + 1 < m_shape.stages ? m_stages[at(stage + 1)].forwards : own.forwards;
      for (Index j = read; j < own.forwards; ++j) times.push_back(own.forward_end[at(j)]);
      Index const gone = stage > 0 ? m_stages[at(stage - 1)].backwards : own.backwards;
      for (Index j = gone; j < own.backwards; ++j) times.push_back(own.backward_end[at(j)]);
    }
    std::vector<std::vector<Ticks>>& known = m_known[key];
    for (std::vector<Ticks> const& earlier : known)
      if (std::ranges::equal(earlier, times, std::ranges::less_equal())) return true;
    if (known.size() < most_states_of_a_key) known.push_back(std::move(times));
    return false;
  }

  void descend() {
    std::vector<Candidate> const next = candidates();
    if (next.empty()) {
      complete();
      return;
    }
    for (Candidate const& one : next) {
      if (m_best == m_bound || m_cut_off) return;
      m_cut_off = ++m_steps > m_limits.most_steps;
      Ticks const clock = m_stages[at(one.stage)].clock;
      put(one);
      if (least() < m_best && !is_known()) descend();
      take_back(one, clock);
    }
  }

  void complete() {
    Ticks time = 0;
    for (PartialStage const& stage : m_stages) time = std::max(time, stage.clock);
    if (time >= m_best) return;
    m_best = time;
    m_best_orders.clear();
    for (PartialStage const& stage : m_stages) m_best_orders.push_back(stage.order);
  }

  PipelineShape m_shape;
  PipelineSearchLimits m_limits;
  Index m_slots;
  Ticks m_bound;
  std::vector<Ticks> m_forward, m_backward;
  std::vector<Ticks> m_tail; ///< by stage: backward of the stages before it
  std::vector<PartialStage> m_stages;
  std::map<std::vector<Index>, std::vector<std::vector<Ticks>>> m_known;
  Ticks m_best = std::numeric_limits<Ticks>::max();
  std::vector<StageOrder> m_best_orders; ///< empty: those that were known
  Ticks m_known_time = std::numeric_limits<Ticks>::max();
  std::vector<StageOrder> m_known_orders;
  Index m_steps = 0;
  bool m_cut_off = false;
};

} // namespace

PipelineSearchResult search_pipeline_order(PipelineShape const& shape, PipelinePrices const& prices,
                                           PipelineSearchLimits const& limits) {
  TRAINSTONE_REQUIRE_INPUT(shape.chunks == 1, "the search knows 1 chunk per stage, not {}", shape.chunks);
  TRAINSTONE_REQUIRE_INPUT(limits.slots >= 0, "a stage has at least 1 slot, not {}", limits.slots);
  PipelinePrices free = prices;
  free.message = 0;
  return Search(shape, free, limits).run(free);
}

} // namespace trainstone
