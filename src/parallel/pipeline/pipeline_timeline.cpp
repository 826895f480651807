#include "parallel/pipeline/pipeline_timeline.hpp"

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_channels.hpp"

#include <algorithm>
#include <numeric>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// A send or a receive.
struct Posted {
  Index micro_batch;
  Index chunk; ///< that reads the message
  Ticks time;
};

class Player {
public:
  Player(PipelineProgram const& program, PipelinePrices const& prices)
      : m_program(program),
        m_prices(prices),
        m_channels(program.shape.stages),
        m_clock(program.stages.size(), 0),
        m_used(program.stages.size(), 0) {
    m_timeline.stages.resize(program.stages.size());
  }

  PipelineTimeline play() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (m_stage = 0; m_stage < m_program.shape.stages; ++m_stage)
        while (!at_end() && play_one()) moved = true;
    }
    for (m_stage = 0; m_stage < m_program.shape.stages; ++m_stage)
      TRAINSTONE_REQUIRE(at_end(), "stage {} of a pipeline waits for ever at its instruction {}", m_stage,
                         own().spans.size());
    return std::move(m_timeline);
  }

private:
  StageTimeline& own() { return m_timeline.stages[at(m_stage)]; }
  std::vector<StageInstruction> const& instructions() const { return m_program.stages[at(m_stage)].instructions; }
  bool at_end() { return own().spans.size() == instructions().size(); }
  Ticks& clock() { return m_clock[at(m_stage)]; }

  /// \return whether the stage has gone on
  bool play_one() {
    StageInstruction const& one = instructions()[own().spans.size()];
    Ticks const begin = clock();
    if (!execute(one)) return false;
    own().spans.push_back({std::ssize(own().spans), begin, clock()});
    return true;
  }

  bool execute(StageInstruction const& one) {
    Index const read = one.act == StageAct::send || one.act == StageAct::wait_send
                           ? Impl::reading_chunk(m_program.shape, one.kind, m_stage, one.chunk)
                           : one.chunk;
    Posted const posted{one.micro_batch, read, clock()};
    switch (one.act) {
    case StageAct::receive: m_channels.received_by(one.kind, m_stage).push_back(posted); return true;
    case StageAct::send: m_channels.sent_by(one.kind, m_stage).push_back(posted); return true;
    case StageAct::wait_receive:
      return wait(one, posted, m_channels.received_by(one.kind, m_stage), m_channels.sent_to(one.kind, m_stage));
    case StageAct::wait_send:
      return wait(one, posted, m_channels.sent_by(one.kind, m_stage), m_channels.received_from(one.kind, m_stage));
    default: compute(one); return true;
    }
  }

  bool wait(StageInstruction const& one, Posted const& message, std::vector<Posted> const& mine,
            std::vector<Posted> const& theirs) {
    std::optional<std::size_t> const place = Impl::place_of(mine, message.micro_batch, message.chunk);
    if (!place || *place >= theirs.size()) return false;
    Ticks const begin = std::max(mine[*place].time, theirs[*place].time);
    clock() = std::max(clock(), begin + m_prices.message);
    if (one.act == StageAct::wait_send && m_program.forward_only) leave_slot();
    if (one.act == StageAct::wait_receive)
      m_timeline.messages.push_back({one.kind, StageNeighbours{m_stage, m_program.shape.stages}.sender(one.kind),
                                     m_stage, one.micro_batch, one.chunk, begin, begin + m_prices.message});
    return true;
  }

  void compute(StageInstruction const& one) {
    Ticks const takes = m_prices.of(m_program.shape, m_program.splits_backward, one.act, m_stage, one.chunk);
    if (one.act == StageAct::forward) own().slots.push_back({clock(), ++m_used[at(m_stage)]});
    clock() += takes;
    own().busy += takes;
    StageAct const last = m_program.splits_backward ? StageAct::weights : StageAct::backward;
    bool const sent = sends(m_program.shape, MessageKind::activation, m_stage, one.chunk);
    if (m_program.forward_only ? !sent : one.act == last) leave_slot();
    m_timeline.time = std::max(m_timeline.time, clock());
  }

  void leave_slot() { own().slots.push_back({clock(), --m_used[at(m_stage)]}); }

  PipelineProgram const& m_program;
  PipelinePrices const& m_prices;
  Impl::PipelineChannels<Posted> m_channels;
  std::vector<Ticks> m_clock; ///< by stage
  std::vector<Index> m_used;  ///< by stage: slots
  PipelineTimeline m_timeline;
  Index m_stage = 0;
};

} // namespace

Ticks PipelinePrices::load(Index stage) const {
  Ticks sum = stage + 1 == std::ssize(chunks) ? head : 0;
  for (ChunkPrice const& chunk : chunks[at(stage)]) sum += chunk.sum();
  return sum;
}

Ticks PipelinePrices::of(PipelineShape const& shape, bool splits_backward, StageAct act, Index stage,
                         Index chunk) const {
  ChunkPrice const& price = chunks[at(stage)][at(chunk)];
  switch (act) {
  case StageAct::forward: return price.forward + (shape.is_last(stage, chunk) ? head : 0);
  case StageAct::backward: return price.backward + (splits_backward ? 0 : price.weights);
  case StageAct::weights: return price.weights;
  default: return 0;
  }
}

PipelinePrices equal_prices(PipelineShape const& shape, ChunkPrice const& stage, Ticks message) {
  Ticks const chunks = shape.chunks;
  TRAINSTONE_REQUIRE(stage.forward % chunks == 0 && stage.backward % chunks == 0 && stage.weights % chunks == 0,
                     "times {}, {}, {} of a stage are no multiples of its {} chunks", stage.forward, stage.backward,
                     stage.weights, chunks);
  ChunkPrice const chunk{stage.forward / chunks, stage.backward / chunks, stage.weights / chunks};
  return {.chunks = {at(shape.stages), std::vector<ChunkPrice>(at(chunks), chunk)}, .message = message};
}

Ticks PipelineTimeline::busy() const {
  return std::accumulate(stages.begin(), stages.end(), Ticks{0},
                         [](Ticks sum, StageTimeline const& stage) { return sum + stage.busy; });
}

double PipelineTimeline::idle_share() const {
  auto const all = static_cast<double>(time) * static_cast<double>(stages.size());
  return all > 0 ? 1 - static_cast<double>(busy()) / all : 0;
}

Index PipelineTimeline::peak_slots(Index stage) const {
  Index peak = 0;
  for (SlotsInUse const& moment : stages[at(stage)].slots) peak = std::max(peak, moment.slots);
  return peak;
}

PipelineTimeline play_pipeline(PipelineProgram const& program, PipelinePrices const& prices) {
  TRAINSTONE_REQUIRE(std::ssize(prices.chunks) == program.shape.stages, "prices of {} stages for {} stages",
                     prices.chunks.size(), program.shape.stages);
  for (auto const& chunks : prices.chunks)
    TRAINSTONE_REQUIRE(std::ssize(chunks) == program.shape.chunks, "prices of {} chunks for {} chunks", chunks.size(),
                       program.shape.chunks);
  return Player(program, prices).play();
}

Ticks exposed_messages(PipelineProgram const& program, PipelinePrices const& prices) {
  PipelinePrices free = prices;
  free.message = 0;
  return play_pipeline(program, prices).time - play_pipeline(program, free).time;
}

} // namespace trainstone
