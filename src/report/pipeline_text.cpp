#include "report/pipeline_text.hpp"

#include "core/aligned.hpp"
#include "core/plural.hpp"
#include "parallel/pipeline/pipeline_proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace trainstone {

namespace {

constexpr Ticks most_cells = 240;   // of a stage: more than this nobody counts
constexpr Ticks cells_of_line = 20; // so that lines fit on a screen

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// The times of one stage if all are equal and the head costs nothing.
std::optional<ChunkPrice> equal_stage(PipelinePrices const& prices) {
  ChunkPrice const& first = prices.chunks.front().front();
  for (auto const& chunks : prices.chunks)
    for (ChunkPrice const& chunk : chunks)
      if (chunk != first || prices.head != 0) return std::nullopt;
  Ticks const chunks = std::ssize(prices.chunks.front());
  return ChunkPrice{chunks * first.forward, chunks * first.backward, chunks * first.weights};
}

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

class Text {
public:
  explicit Text(PipelineExplanation const& explanation)
      : m_explanation(explanation),
        m_program(explanation.program),
        m_timeline(explanation.timeline),
        m_shape(explanation.program.shape),
        m_drawn(explanation.timeline) {
    if (explanation.prices.message == 0 || cells() <= most_cells) return;
    PipelinePrices free = explanation.prices;
    free.message = 0;
    m_drawn = play_pipeline(m_program, free);
    m_without_messages = true;
  }

  std::string write() const {
    return fmt::format("{}: {}\n{}.\n\n{}{}\n{}\n{}\n{}", pipeline_title(m_explanation), times(), m_explanation.meaning,
                       grid(), waiting(), figures(), stages(), sum_rule());
  }

private:
  std::string units(Ticks ticks) const { return fmt::format("{:.6g}", in_units(static_cast<double>(ticks))); }
  double in_units(double ticks) const { return ticks / static_cast<double>(m_explanation.unit); }

  /// "forward 1, backward 2": of a stage; of each stage if they differ.
  std::string times() const {
    PipelinePrices without_head = m_explanation.prices;
    without_head.head = 0;
    bool const equal = equal_stage(without_head).has_value();
    auto const list = [&](StageAct act) {
      std::string text;
      for (Index stage = 0; stage < (equal ? 1 : m_shape.stages); ++stage) {
        Ticks sum = 0;
        for (Index chunk = 0; chunk < m_shape.chunks; ++chunk)
          sum += without_head.of(m_shape, m_program.splits_backward, act, stage, chunk);
        text += (text.empty() ? "" : " ") + units(sum);
      }
      return text;
    };
    std::string text = fmt::format("forward {}, backward {}", list(StageAct::forward), list(StageAct::backward));
    if (m_program.splits_backward) text += ", weights " + list(StageAct::weights);
    if (m_explanation.prices.head > 0) text += ", head " + units(m_explanation.prices.head);
    if (m_explanation.prices.message > 0) text += ", message " + units(m_explanation.prices.message);
    return text;
  }

  std::string label(StageInstruction const& one) const {
    char const letter = one.act == StageAct::forward ? 'F' : one.act == StageAct::backward ? 'B' : 'W';
    return fmt::format("{}{}{}", letter, one.micro_batch, m_shape.chunks > 1 ? fmt::format(".{}", one.chunk) : "");
  }

  /// Calls visit(stage, instruction, span) for everything that is computed in the timeline that is drawn.
  template <class Visit>
  void for_each_operation(Visit const& visit) const {
    for (Index stage = 0; stage < m_shape.stages; ++stage)
      for (PipelineSpan const& span : m_drawn.stages[at(stage)].spans) {
        StageInstruction const& one = m_program.stages[at(stage)].instructions[at(span.instruction)];
        if (computes(one.act)) visit(stage, one, span);
      }
  }

  /// The largest time of which everything begins and ends at a multiple.
  Ticks cell() const {
    Ticks cell = m_drawn.time;
    for_each_operation([&](Index, StageInstruction const&, PipelineSpan const& span) {
      cell = std::gcd(cell, std::gcd(span.begin, span.end));
    });
    return std::max<Ticks>(cell, 1);
  }
  Ticks cells() const { return m_drawn.time / cell(); }

  std::string grid() const {
    Ticks const one_cell = cell(), all = cells();
    if (all > most_cells)
      return fmt::format("The grid would have {} cells per stage and is left out; --svg draws it.\n", all);
    std::vector<std::vector<std::string>> rows(at(m_shape.stages), std::vector<std::string>(at(all), "wait"));
    for_each_operation([&](Index stage, StageInstruction const& one, PipelineSpan const& span) {
      for (Ticks i = span.begin / one_cell; i < span.end / one_cell; ++i) rows[at(stage)][at(i)] = label(one);
    });
    std::string text = fmt::format("A cell is {} of time{}. F0 is the forward of micro-batch 0, B0 its backward{}{}.\n",
                                   units(one_cell), m_without_messages ? ", without messages" : "",
                                   m_program.splits_backward ? ", W0 the gradients of parameters" : "",
                                   m_shape.chunks > 1 ? "; F0.1 is of chunk 1" : "");
    for (Ticks begin = 0; begin < all; begin += cells_of_line) {
      std::vector<std::vector<std::string>> lines;
      for (Index stage = 0; stage < m_shape.stages; ++stage) {
        lines.push_back({fmt::format("stage {}", stage)});
        for (Ticks i = begin; i < std::min(all, begin + cells_of_line); ++i)
          lines.back().push_back(rows[at(stage)][at(i)]);
      }
      text += aligned(lines) + (begin + cells_of_line < all ? "\n" : "");
    }
    return text;
  }

  /// "waiting: 24 of 60 cells (40 %)", and where all forwards end before backwards begin, by direction.
  std::string waiting() const {
    Ticks const all = m_shape.stages * cells();
    std::string text = fmt::format("waiting: {} of {} cells ({})\n", all - m_drawn.busy() / cell(), all,
                                   percent(m_drawn.idle_share()));
    std::optional<ChunkPrice> const stage = equal_stage(m_explanation.prices);
    Ticks forwards = 0, backwards = m_drawn.time; // end and begin
    for_each_operation([&](Index, StageInstruction const& one, PipelineSpan const& span) {
      if (one.act == StageAct::forward)
        forwards = std::max(forwards, span.end);
      else
        backwards = std::min(backwards, span.begin);
    });
    if (!stage || m_program.splits_backward || backwards < forwards) return text;
    return text + direction("forward", forwards, stage->forward) +
           direction("backward", m_drawn.time - backwards, stage->backward + stage->weights);
  }

  /// Cells of one micro-batch each. Nothing if messages make it no whole number.
  std::string direction(char const* name, Ticks time, Ticks takes) const {
    if (takes == 0 || time % takes != 0) return "";
    Index const cells = m_shape.stages * (time / takes);
    Index const waits = cells - m_shape.stages * m_shape.micro_batches;
    return fmt::format("  {}: {} of {} cells of a micro-batch ({})\n", name, waits, cells,
                       percent(static_cast<double>(waits) / static_cast<double>(cells)));
  }

  std::string figures() const {
    std::string text = fmt::format("time {}; no order takes less than {}: gap {:.3g} %\n", units(m_timeline.time),
                                   units(m_explanation.bound), gap_percent(m_timeline.time, m_explanation.bound));
    text += m_explanation.prices.message > 0
                ? fmt::format("{} messages of {}; nothing hides {} of their time\n", m_timeline.messages.size(),
                              units(m_explanation.prices.message), units(m_explanation.exposed))
                : fmt::format("{} messages, which take no time\n", m_timeline.messages.size());
    if (!m_explanation.formulas) return text;
    PipelineFormulas const& formulas = *m_explanation.formulas;
    text +=
        fmt::format("closed forms: time {} without messages, idle {} of it, {:.4g} of the computing time; messages {}",
                    units(formulas.time), percent(formulas.bubble_share()), formulas.bubble_ratio, formulas.messages);
    if (formulas.exposed_messages) text += fmt::format("; short ones add {} of theirs", *formulas.exposed_messages);
    return text + "\n";
  }

  std::string stages() const {
    std::vector<std::vector<std::string>> rows{
        {"", "computes", "waits", "slots", "input buffers", "gradient buffers", "messages sent"}};
    for (Index stage = 0; stage < m_shape.stages; ++stage) {
      StageProgram const& own = m_program.stages[at(stage)];
      auto const sent =
          std::ranges::count_if(own.instructions, [](auto const& one) { return one.act == StageAct::send; });
      rows.push_back({fmt::format("stage {}", stage), units(m_timeline.stages[at(stage)].busy),
                      units(m_timeline.idle(stage)), std::to_string(own.slots), std::to_string(own.inputs),
                      std::to_string(own.gradients), std::to_string(sent)});
    }
    return aligned(rows);
  }

  std::string sum_rule() const {
    PipelineTimeParts const& parts = m_explanation.parts;
    auto const text = [&](double ticks) { return fmt::format("{:.6g}", in_units(ticks)); };
    return fmt::format("{} x time = {}: computing {} + unavoidable {} + imbalance {} + order {} + messages {}\n",
                       plural(m_shape.stages, "stage"), text(parts.time), text(parts.busy), text(parts.unavoidable),
                       text(parts.imbalance), text(parts.order), text(parts.messages));
  }

  PipelineExplanation const& m_explanation;
  PipelineProgram const& m_program;
  PipelineTimeline const& m_timeline;
  PipelineShape const& m_shape;
  PipelineTimeline m_drawn;        ///< with messages, unless they make too many cells
  bool m_without_messages = false; ///< the timeline that is drawn
};

} // namespace

PipelineExplanation explain_program(std::string name, std::string meaning, PipelineProgram program,
                                    PipelinePrices const& prices, Ticks unit) {
  require_proved(program);
  PipelineExplanation explanation{.name = std::move(name),
                                  .meaning = std::move(meaning),
                                  .program = std::move(program),
                                  .prices = prices,
                                  .unit = unit};
  PipelineProgram const& proved = explanation.program;
  explanation.timeline = play_pipeline(proved, prices);
  explanation.exposed = exposed_messages(proved, prices);
  explanation.bound = pipeline_bound(proved.shape, proved.splits_backward, prices);
  explanation.parts = time_parts(proved, prices);
  if (std::optional<ChunkPrice> const stage = equal_stage(prices))
    explanation.formulas = pipeline_formulas(explanation.name, proved.shape, *stage);
  return explanation;
}

PipelineExplanation explain_search(PipelineExplanation const& schedule, PipelineSearchResult const& found,
                                   Index slots) {
  auto const units = [&](Ticks ticks) {
    return fmt::format("{:.6g}", static_cast<double>(ticks) / static_cast<double>(schedule.unit));
  };
  Index most = 0;
  for (StageProgram const& stage : schedule.program.stages) most = std::max(most, stage.slots);
  std::string const limit = slots > 0 ? fmt::format("at most {}", plural(slots, "slot")) : "any number of slots";
  std::string const proof =
      found.is_best() ? slots > 0 ? fmt::format("no order with {} is faster", limit) : "no order is faster"
      : found.cut_off ? fmt::format("cut off after {} steps, so faster orders may exist", found.steps)
                      : fmt::format("no order takes less than {}", units(found.least));
  std::string const meaning = fmt::format(
      "the best order found with {} takes {} without messages: {}. {} takes {} with {}", limit, units(found.time),
      proof, schedule.name, units(schedule.timeline.time - schedule.exposed), plural(most, "slot"));
  return explain_program("search", meaning, make_pipeline_program(schedule.program.shape, found.orders),
                         schedule.prices, schedule.unit);
}

std::string pipeline_title(PipelineExplanation const& explanation) {
  PipelineShape const& shape = explanation.program.shape;
  std::string const chunks = shape.chunks > 1 ? fmt::format(" of {}", plural(shape.chunks, "chunk")) : "";
  return fmt::format("{} on {}{}, {}", explanation.name, plural(shape.stages, "stage"), chunks,
                     shape.micro_batches == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", shape.micro_batches));
}

std::string pipeline_figures(PipelineExplanation const& explanation) {
  auto const units = [&](Ticks ticks) { return static_cast<double>(ticks) / static_cast<double>(explanation.unit); };
  return fmt::format("time {:.6g}, bound {:.6g}, gap {:.3g} %, waiting {:.3g} %", units(explanation.timeline.time),
                     units(explanation.bound), gap_percent(explanation.timeline.time, explanation.bound),
                     100 * explanation.timeline.idle_share());
}

std::string pipeline_text(PipelineExplanation const& explanation) { return Text(explanation).write(); }

std::vector<std::string> pipeline_row(PipelineExplanation const& explanation) {
  PipelineShape const& shape = explanation.program.shape;
  auto const units = [&](Ticks ticks) {
    return fmt::format("{:.6g}", static_cast<double>(ticks) / static_cast<double>(explanation.unit));
  };
  Index slots = 0;
  for (StageProgram const& stage : explanation.program.stages) slots = std::max(slots, stage.slots);
  PipelineTimeline const& timeline = explanation.timeline;
  return {std::to_string(shape.stages),
          std::to_string(shape.micro_batches),
          std::to_string(shape.chunks),
          units(timeline.time),
          units(explanation.bound),
          fmt::format("{:.3g} %", gap_percent(timeline.time, explanation.bound)),
          percent(timeline.idle_share()),
          std::to_string(slots),
          std::to_string(timeline.messages.size()),
          units(explanation.exposed)};
}

std::string pipeline_table(PipelineExplanation const& any, std::vector<std::vector<std::string>> rows) {
  rows.insert(rows.begin(), {"stages", "micro-batches", "chunks", "time", "bound", "gap", "waiting", "slots",
                             "messages", "not hidden"});
  return fmt::format("{}: {}.\n\n{}", any.name, any.meaning, aligned(rows));
}

} // namespace trainstone
