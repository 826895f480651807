// The picture of a predicted timeline.

#include "report/svg.hpp"
#include "report/timeline_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace trainstone {

namespace {

// pixels
constexpr double margin = 24;
constexpr double label_width = 190;
constexpr double time_width = 1000;
constexpr double lane_height = 22;
constexpr double line_height = 18;
constexpr double class_gap = 14;
constexpr int ticks = 8;

// Every rule is of this picture alone, because the style of a picture in a page is the whole page's.
constexpr char const* style =
    "<style>.timeline text{font-family:sans-serif;font-size:13px;fill:#1a1a1a}"
    ".timeline .title{font-size:18px;font-weight:bold}.timeline .small{font-size:12px;fill:#444}"
    ".timeline .tick{stroke:#d1d5db}.timeline rect{stroke:#ffffff;stroke-width:0.4}"
    ".timeline .forward{fill:#3b82f6}.timeline .backward{fill:#16a34a}.timeline .update{fill:#8b5cf6}"
    ".timeline .other{fill:#9ca3af}.timeline .wait{fill:#dc2626}.timeline .collective{fill:#f59e0b}</style>\n"
    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";

char const* look_of(Act act) {
  switch (act) {
  case Act::forward:
  case Act::recompute: return "forward";
  case Act::loss:
  case Act::backward: return "backward";
  case Act::norm:
  case Act::update: return "update";
  case Act::wait: return "wait";
  default: return "other";
  }
}

class Picture {
public:
  Picture(StepTimeline const& timeline, std::vector<ShardPlan> const& stages,
          std::optional<MeasuredStep> const& measured)
      : m_timeline(timeline), m_stages(stages), m_measured(measured) {
    if (measured) {
      m_end = nanoseconds(measured->milliseconds);
      for (MeasuredClass const& one : measured->classes) {
        for (MeasuredTime const& time : one.entries) m_end = std::max(m_end, end_of(time));
        for (MeasuredCollective const& collective : one.collectives) m_end = std::max(m_end, end_of(collective.time));
      }
    }
    for (ClassTimeline const& one : timeline.classes)
      for (auto const* const entries : {&one.entries, &one.collectives})
        for (TimelineEntry const& entry : *entries) m_end = std::max(m_end, entry.end);
  }

  std::string draw(std::string const& title) {
    line(title, "class=\"title\"");
    line(timeline_summary(m_timeline).substr(0, timeline_summary(m_timeline).find('\n')), "class=\"small\"");
    key();
    axis();
    for (std::size_t number = 0; number < m_timeline.classes.size(); ++number) {
      lanes(m_timeline.classes[number]);
      if (m_measured) measured_lanes(m_timeline.classes[number], m_measured->classes[number]);
    }
    double const width = 2 * margin + label_width + time_width;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"timeline\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
               "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n<title>{2}</title>\n",
               width, m_y + margin, escaped(title)) +
           style + m_body + "</svg>\n";
  }

private:
  static Nanoseconds nanoseconds(double milliseconds) { return std::llround(1e6 * milliseconds); }
  static Nanoseconds end_of(MeasuredTime const& time) { return nanoseconds(time.begin + time.milliseconds); }

  void line(std::string const& text, char const* look) {
    m_y += line_height;
    m_body += text_at(margin, m_y, text, look);
    m_y += 4;
  }

  double x(Nanoseconds time) const {
    return margin + label_width +
           time_width * static_cast<double>(std::max<Nanoseconds>(0, time)) / static_cast<double>(m_end);
  }

  void rectangle(double begin, double end, double y, char const* look, std::string const& hint) {
    m_body += fmt::format("<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\">"
                          "<title>{}</title></rect>\n",
                          look, begin, y, end - begin, lane_height - 4, escaped(hint));
  }

  void key() {
    m_y += line_height;
    double at = margin;
    using Entry = std::pair<char const*, char const*>;
    for (auto const& [look, meaning] :
         {Entry{"forward", "forward and recomputation"}, Entry{"backward", "loss and backward"},
          Entry{"update", "norm and update"}, Entry{"wait", "waits, and the core's part of collectives"},
          Entry{"other", "other work"}, Entry{"collective", "collective under way"}}) {
      rectangle(at, at + 22, m_y - 14, look, meaning);
      m_body += text_at(at + 28, m_y, meaning, "class=\"small\"");
      at += 48 + width_of(meaning);
    }
    m_y += 8;
  }

  void axis() {
    m_y += line_height;
    double const pairs = static_cast<double>(m_timeline.classes.size()) * (m_measured ? 2 : 1);
    double const height = pairs * (2 * lane_height + class_gap);
    for (int tick = 0; tick <= ticks; ++tick) {
      Nanoseconds const time = m_end / ticks * tick;
      m_body += fmt::format("<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
                            x(time), m_y + 4, m_y + 4 + height);
      m_body += text_at(x(time), m_y, fmt::format("{:.4g} ms", 1e-6 * static_cast<double>(time)), "class=\"small\"");
    }
    m_y += 8;
  }

  void lanes(ClassTimeline const& one) {
    m_body += text_at(margin, m_y + lane_height - 8, class_name(one.ranks, m_timeline.stages()), "class=\"small\"");
    m_body += text_at(margin, m_y + 2 * lane_height - 8, "collectives", "class=\"small\"");
    for (TimelineEntry const& entry : one.entries)
      if (entry.end > entry.begin)
        rectangle(x(entry.begin), x(entry.end), m_y, look_of(entry.instruction.act), hint_of(one, entry));
    for (TimelineEntry const& entry : one.collectives)
      if (entry.end > std::max<Nanoseconds>(entry.begin, 0))
        rectangle(x(entry.begin), x(entry.end), m_y + lane_height, "collective", hint_of(one, entry));
    m_y += 2 * lane_height + class_gap;
  }

  void measured_lanes(ClassTimeline const& one, MeasuredClass const& measured) {
    m_body +=
        text_at(margin, m_y + lane_height - 8, fmt::format("rank {}, measured", one.ranks.first), "class=\"small\"");
    m_body += text_at(margin, m_y + 2 * lane_height - 8, "collectives, measured", "class=\"small\"");
    for (std::size_t i = 0; i < one.entries.size(); ++i)
      measured_bar(measured.entries[i], m_y, look_of(one.entries[i].instruction.act), name_of(one, one.entries[i]));
    for (auto const& [name, time] : measured.collectives) measured_bar(time, m_y + lane_height, "collective", name);
    m_y += 2 * lane_height + class_gap;
  }

  void measured_bar(MeasuredTime const& time, double y, char const* look, std::string const& what) {
    if (time.milliseconds <= 0) return;
    rectangle(x(nanoseconds(time.begin)), x(end_of(time)), y, look,
              fmt::format("{}: {:.4g} ms measured", what, time.milliseconds));
  }

  std::string name_of(ClassTimeline const& one, TimelineEntry const& entry) const {
    return to_string(entry.instruction, m_stages[static_cast<std::size_t>(one.ranks.stage)]);
  }

  std::string hint_of(ClassTimeline const& one, TimelineEntry const& entry) const {
    return fmt::format("{}: {:.4g} ms{}", name_of(one, entry), 1e-6 * static_cast<double>(entry.end - entry.begin),
                       entry.times > 1 ? fmt::format(", of {} micro-batches", entry.times) : "");
  }

  StepTimeline const& m_timeline;
  std::vector<ShardPlan> const& m_stages;
  std::optional<MeasuredStep> const& m_measured;
  Nanoseconds m_end = 1;
  std::string m_body;
  double m_y = margin;
};

} // namespace

std::string timeline_svg(std::string const& title, StepTimeline const& timeline, std::vector<ShardPlan> const& stages,
                         std::optional<MeasuredStep> const& measured) {
  return Picture(timeline, stages, measured).draw(title);
}

} // namespace trainstone
