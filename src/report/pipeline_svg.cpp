// The picture of a pipeline. Part of pipeline_text.hpp.

#include "report/axis.hpp"
#include "report/pipeline_text.hpp"
#include "report/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

// pixels
constexpr double margin = 24;
constexpr double label_width = 80;
constexpr double time_width = 1100;
constexpr double lane_height = 30;
constexpr double slots_height = 22; // of the largest number of slots
constexpr double lane_gap = 14;
constexpr double line_height = 18;
constexpr double least_width_of_label = 22;
constexpr std::size_t most_ticks = 12;

// Every rule is of this picture alone, because the style of a picture in a page is the whole page's.
constexpr char const* style =
    "<style>.pipeline text{font-family:sans-serif;font-size:13px;fill:#1a1a1a}"
    ".pipeline .title{font-size:18px;font-weight:bold}.pipeline .small{font-size:12px;fill:#444}"
    ".pipeline .cell{font-size:11px;fill:#ffffff;text-anchor:middle}"
    ".pipeline .tick{stroke:#d1d5db}.pipeline rect{stroke:#ffffff;stroke-width:0.4}"
    ".pipeline .forward{fill:#3b82f6}.pipeline .backward{fill:#16a34a}.pipeline .weights{fill:#8b5cf6}"
    ".pipeline .wait{fill:#e5e7eb}.pipeline .slots{fill:#f59e0b}.pipeline .message{stroke:#6b7280;stroke-width:0.8}"
    "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";

char const* look_of(StageAct act) {
  if (act == StageAct::forward) return "forward";
  return act == StageAct::backward ? "backward" : "weights";
}

class Picture {
public:
  explicit Picture(PipelineExplanation const& explanation)
      : m_explanation(explanation), m_timeline(explanation.timeline), m_shape(explanation.program.shape) {
    for (StageProgram const& stage : explanation.program.stages) m_most_slots = std::max(m_most_slots, stage.slots);
  }

  std::string draw() {
    std::string const title = pipeline_title(m_explanation);
    line(title, "class=\"title\"");
    line(pipeline_figures(m_explanation), "class=\"small\"");
    key();
    axis();
    m_top = m_y;
    for (Index stage = 0; stage < m_shape.stages; ++stage) lane(stage);
    if (m_explanation.prices.message > 0)
      for (MessageSpan const& message : m_timeline.messages) arrow(message);
    m_y = top_of(m_shape.stages);
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pipeline\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
               "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n<title>{2}</title>\n",
               2 * margin + label_width + time_width, m_y + margin, escaped(title)) +
           style + m_body + "</svg>\n";
  }

private:
  void line(std::string const& text, char const* look) {
    m_y += line_height;
    m_body += text_at(margin, m_y, text, look);
    m_y += 4;
  }

  double x(Ticks time) const {
    return margin + label_width +
           time_width * static_cast<double>(time) / static_cast<double>(std::max<Ticks>(1, m_timeline.time));
  }
  double top_of(Index stage) const {
    return m_top + static_cast<double>(stage) * (lane_height + slots_height + lane_gap);
  }
  std::string units(Ticks time) const {
    return fmt::format("{:.4g}", static_cast<double>(time) / static_cast<double>(m_explanation.unit));
  }

  void rectangle(double begin, double end, double y, double height, char const* look, std::string const& hint) {
    m_body += fmt::format("<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\">"
                          "<title>{}</title></rect>\n",
                          look, begin, y, end - begin, height, escaped(hint));
  }

  void key() {
    m_y += line_height;
    double place = margin;
    using Entry = std::pair<char const*, char const*>;
    for (auto const& [look, meaning] :
         {Entry{"forward", "forward"}, Entry{"backward", "backward"}, Entry{"weights", "gradients of parameters"},
          Entry{"wait", "wait"}, Entry{"slots", "slots in use"}}) {
      if (look == std::string_view("weights") && !m_explanation.program.splits_backward) continue;
      rectangle(place, place + 22, m_y - 14, 18, look, meaning);
      m_body += text_at(place + 28, m_y, meaning, "class=\"small\"");
      place += 48 + width_of(meaning);
    }
    m_y += 8;
  }

  void axis() {
    m_y += line_height;
    double const height = static_cast<double>(m_shape.stages) * (lane_height + slots_height + lane_gap);
    auto const unit = static_cast<double>(m_explanation.unit);
    std::vector<double> const times =
        linear_ticks({0, static_cast<double>(std::max<Ticks>(1, m_timeline.time)) / unit}, most_ticks);
    for (double const time : times) {
      double const place = x(std::llround(time * unit));
      m_body += fmt::format("<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
                            place, m_y + 4, m_y + 4 + height);
      m_body += text_at(place, m_y, tick_text(time, times), "class=\"small\"");
    }
    m_y += 8;
  }

  void lane(Index stage) {
    double const top = top_of(stage);
    StageTimeline const& own = m_timeline.stages[static_cast<std::size_t>(stage)];
    m_body += text_at(margin, top + lane_height - 10, fmt::format("stage {}", stage), "class=\"small\"");
    rectangle(x(0), x(m_timeline.time), top, lane_height, "wait",
              fmt::format("waits {} of {}", units(m_timeline.idle(stage)), units(m_timeline.time)));
    for (PipelineSpan const& span : own.spans) operation(stage, span, top);
    for (std::size_t i = 0; i < own.slots.size(); ++i) {
      Ticks const end = i + 1 < own.slots.size() ? own.slots[i + 1].time : m_timeline.time;
      if (end == own.slots[i].time || own.slots[i].slots == 0) continue;
      double const height = slots_height * static_cast<double>(own.slots[i].slots) /
                            static_cast<double>(std::max<Index>(1, m_most_slots));
      rectangle(x(own.slots[i].time), x(end), top + lane_height + slots_height - height, height, "slots",
                fmt::format("{} of {} slots", own.slots[i].slots,
                            m_explanation.program.stages[static_cast<std::size_t>(stage)].slots));
    }
  }

  void operation(Index stage, PipelineSpan const& span, double top) {
    StageInstruction const& one = m_explanation.program.stages[static_cast<std::size_t>(stage)]
                                      .instructions[static_cast<std::size_t>(span.instruction)];
    if (!computes(one.act) || span.end == span.begin) return;
    rectangle(
        x(span.begin), x(span.end), top, lane_height, look_of(one.act),
        fmt::format("{}: {} from {}", to_string(one, m_shape.chunks), units(span.end - span.begin), units(span.begin)));
    std::string const label =
        m_shape.chunks > 1 ? fmt::format("{}.{}", one.micro_batch, one.chunk) : fmt::format("{}", one.micro_batch);
    if (x(span.end) - x(span.begin) >= least_width_of_label)
      m_body += text_at((x(span.begin) + x(span.end)) / 2, top + lane_height - 10, label, "class=\"cell\"");
  }

  void arrow(MessageSpan const& message) {
    m_body += fmt::format(
        "<line class=\"message\" x1=\"{:.2f}\" y1=\"{:.1f}\" x2=\"{:.2f}\" y2=\"{:.1f}\"><title>{}</title></line>\n",
        x(message.begin), top_of(message.sender) + lane_height / 2, x(message.end),
        top_of(message.receiver) + lane_height / 2,
        escaped(fmt::format("{} {} from stage {} to stage {}", to_string(message.kind), message.micro_batch,
                            message.sender, message.receiver)));
  }

  PipelineExplanation const& m_explanation;
  PipelineTimeline const& m_timeline;
  PipelineShape const& m_shape;
  Index m_most_slots = 0;
  std::string m_body;
  double m_y = margin;
  double m_top = 0; ///< of the first lane
};

} // namespace

std::string pipeline_svg(PipelineExplanation const& explanation) { return Picture(explanation).draw(); }

} // namespace trainstone
