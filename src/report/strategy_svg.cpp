#include "report/strategy_svg.hpp"

#include "parallel/program/step_walk.hpp"
#include "report/strategy_text.hpp"
#include "report/svg.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

// pixels
constexpr double margin = 24;
constexpr double label_width = 72;
constexpr double cell_width = 104;
constexpr double column_gap = 20;
constexpr double bar_height = 9;
constexpr double row_height = 3 * bar_height + 8;
constexpr double line_height = 17;
constexpr double panel_head = 44;
constexpr double panel_gap = 26;

constexpr char const* style =
    "<style>text{font-family:sans-serif;font-size:13px;fill:#1a1a1a}.title{font-size:18px;font-weight:bold}"
    ".head{font-weight:bold}.small{font-size:12px;fill:#444}.rank{font-size:12px;text-anchor:middle}"
    ".none{fill:#f3f4f6}.parameters{fill:#3b82f6}.own{fill:#f59e0b}.sum{fill:#16a34a}.optimizer{fill:#8b5cf6}"
    ".under_way{fill:#fde68a}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";

class Picture {
public:
  Picture(std::string const& name, StepWalk const& walk) : m_name(name), m_walk(walk) {}

  std::string draw() {
    std::string const title = strategy_title(m_name, m_walk);
    line(title, "class=\"title\"", 1.3);
    m_y += 8;
    line(strategy_meaning(m_walk), "class=\"small\"");
    key();
    for (Moment const& moment : m_walk.moments) panel(moment);
    std::string const sums = strategy_sums(m_walk);
    for (std::size_t begin = 0; begin < sums.size();) {
      std::size_t const end = sums.find('\n', begin);
      line(sums.substr(begin, end - begin), "class=\"small\" xml:space=\"preserve\"");
      begin = end + 1;
    }
    m_width = std::max(m_width, left(m_walk.ranks()));
    return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
                       "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n<title>{2}</title>\n",
                       m_width + margin, m_y + margin, escaped(title)) +
           style + m_body + "</svg>\n";
  }

private:
  void line(std::string const& text, std::string const& look, double scale = 1) {
    m_y += line_height;
    m_body += text_at(margin, m_y, text, look);
    m_width = std::max(m_width, margin + scale * width_of(text));
  }

  static double left(Rank rank) { return margin + label_width + rank * (cell_width + column_gap); }

  void rectangle(double x, double y, double width, char const* look) {
    m_body += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", look,
                          x, y, width, bar_height - 1);
  }

  void key() {
    m_y += line_height;
    double x = margin;
    using Entry = std::pair<char const*, char const*>;
    for (auto const& [look, meaning] :
         {Entry{"parameters", "parameters"}, Entry{"own", "gradient of the rank's own micro-batch"},
          Entry{"sum", "gradient summed over ranks"}, Entry{"optimizer", "optimizer state"},
          Entry{"under_way", "a collective is under way"}}) {
      rectangle(x, m_y - bar_height, 24, look);
      m_body += text_at(x + 30, m_y, meaning, "class=\"small\"");
      x += 48 + width_of(meaning);
    }
    m_width = std::max(m_width, x);
  }

  void panel(Moment const& moment) {
    m_y += panel_gap;
    line(moment.name, "class=\"head\"");
    if (!moment.dropped.empty()) line("dropped: " + unit_names(m_walk, moment.dropped), "class=\"small\"");
    for (WalkedCollective const& started : moment.before)
      line("starts: " + collective_text(m_walk, started), "class=\"small\"");
    double const top = m_y + panel_head - line_height;
    for (Rank rank = 0; rank < m_walk.ranks(); ++rank)
      m_body += text_at(left(rank) + cell_width / 2, top - 6, fmt::format("rank {}", rank), "class=\"rank\"");
    for (std::size_t g = 0; g < moment.states.size(); ++g) {
      double const y = top + row_height * static_cast<double>(g);
      m_body += text_at(margin, y + 2 * bar_height, m_walk.layout().units[g].name, "class=\"small\"");
      for (Rank rank = 0; rank < m_walk.ranks(); ++rank) cell(static_cast<Index>(g), moment.states[g], rank, y);
    }
    m_y = top + row_height * static_cast<double>(moment.states.size());
    for (WalkedCollective const& started : moment.after) line(end_text(m_walk, started), "class=\"small\"");
  }

  void cell(Index unit, UnitState const& state, Rank rank, double y) {
    StateLayout const& layout = m_walk.layout();
    bar(held_by(layout, unit, rank, StatePart::parameters, state.parameters), rank, y, "parameters");
    bar(held_by(layout, unit, rank, StatePart::gradient, state.gradient), rank, y + bar_height,
        state.gradient == Holding::own ? "own" : "sum");
    bar(optimizer_held_by(layout, unit, rank), rank, y + 2 * bar_height, "optimizer");
  }

  void bar(Holding holding, Rank rank, double y, char const* look) {
    Mesh const& mesh = m_walk.layout().mesh;
    double const share = cell_width / (mesh.servers > 0 ? mesh.servers : mesh.shard);
    bool const moving = holding == Holding::under_way;
    rectangle(left(rank), y, cell_width, moving ? "under_way" : "none");
    if (holding == Holding::nothing || moving) return;
    bool const part = holding == Holding::share;
    rectangle(left(rank) + (part ? share * number_of_share(mesh, rank) : 0), y, part ? share : cell_width, look);
  }

  std::string const& m_name;
  StepWalk const& m_walk;
  std::string m_body;
  double m_y = margin;
  double m_width = 0;
};

} // namespace

std::string strategy_svg(std::string const& name, StepWalk const& walk) { return Picture(name, walk).draw(); }

} // namespace trainstone
