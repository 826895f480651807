#include "report/explanation_svg.hpp"

#include "report/explanation_text.hpp"
#include "report/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

// pixels
constexpr double margin = 24;
constexpr double cell_height = 24;
constexpr double column_gap = 64; // room for arrows
constexpr double least_cell_width = 48;
constexpr double panel_head = 56;
constexpr double panel_gap = 28;
constexpr double line_height = 18;

class Picture {
public:
  explicit Picture(Explanation const& explanation) : m_explanation(explanation), m_places(shown_places(explanation)) {
    m_cell_width = least_cell_width;
    for (ExplainedRound const& round : explanation.rounds)
      for (auto const& of_rank : round.held)
        for (std::size_t const place : m_places)
          m_cell_width = std::max(m_cell_width, width_of(cell_text(explanation, of_rank[place])) + 16);
    for (Rank rank = 0; rank < explanation.problem.ranks(); ++rank)
      m_cell_width = std::max(m_cell_width, width_of(rank_name(explanation, rank)) - column_gap / 2);
    for (std::size_t const place : m_places)
      m_label_width = std::max(m_label_width, width_of(place_name(explanation, place)) + 16);
  }

  std::string draw() const {
    std::string const title = explanation_title(m_explanation);
    double const ranks = static_cast<double>(m_explanation.problem.ranks());
    double const columns = m_label_width + ranks * m_cell_width + (ranks - 1) * column_gap;
    double width = 2 * margin + std::max(columns + column_gap, 1.15 * width_of(title));
    std::string body = text_at(margin, margin + 16, title, "class=\"title\"");
    body += text_at(margin, margin + 40, meaning_of(m_explanation.problem), "class=\"small\"");
    width = std::max(width, 2 * margin + width_of(meaning_of(m_explanation.problem)));
    double y = margin + 64;
    for (std::size_t round = 0; round < m_explanation.rounds.size(); ++round) {
      body += panel(round, y);
      y += panel_height() + panel_gap;
    }
    std::string const counts = counts_text(m_explanation);
    for (std::size_t begin = 0; begin < counts.size();) {
      std::size_t const end = counts.find('\n', begin);
      std::string const line = counts.substr(begin, end - begin);
      body += text_at(margin, y, line, "class=\"small\"");
      width = std::max(width, 2 * margin + width_of(line));
      y += line_height;
      begin = end + 1;
    }
    return head(width, y + margin, title) + body + "</svg>\n";
  }

private:
  static std::string head(double width, double height, std::string const& title) {
    return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
                       "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n<title>{2}</title>\n",
                       width, height, escaped(title)) +
           "<style>text{font-family:sans-serif;font-size:13px;fill:#1a1a1a}.title{font-size:18px;font-weight:bold}"
           ".head{font-weight:bold}.small{font-size:12px;fill:#444}.cell{text-anchor:middle}"
           ".arrow{fill:none;stroke:#c2410c;stroke-width:1.6;stroke-opacity:0.8}"
           ".memory{fill:none;stroke:#6d28d9;stroke-width:1.3;stroke-opacity:0.7;stroke-dasharray:4 "
           "3}</style>\n<defs>" +
           tip("arrow", "#c2410c") + tip("memory", "#6d28d9") +
           "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  }

  static std::string tip(std::string const& kind, std::string const& color) {
    return fmt::format("<marker id=\"{}-tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
                       "markerHeight=\"7\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"{}\"/></marker>",
                       kind, color);
  }

  double panel_height() const { return panel_head + cell_height * static_cast<double>(m_places.size()); }
  double left(Rank rank) const { return margin + m_label_width + rank * (m_cell_width + column_gap); }

  std::string panel(std::size_t number, double top) const {
    ExplainedRound const& round = m_explanation.rounds[number];
    bool const barrier = std::ranges::any_of(
        round.moves, [](ExplainedMove const& move) { return move.move.action == Action::node_barrier; });
    std::string const name =
        number == 0 ? "start" : fmt::format("after round {}{}", number, barrier ? ": node barrier" : "");
    std::string text = text_at(margin, top + 14, name, "class=\"head\"");
    double const cells = top + panel_head;
    for (std::size_t row = 0; row < m_places.size(); ++row)
      text += text_at(margin, cells + cell_height * (static_cast<double>(row) + 0.68),
                      place_name(m_explanation, m_places[row]), "class=\"small\"");
    for (Rank rank = 0; rank < m_explanation.problem.ranks(); ++rank) {
      text += text_at(left(rank) + m_cell_width / 2, cells - 8, rank_name(m_explanation, rank), "class=\"cell small\"");
      for (bool const changed : {false, true}) // their borders lie over the others'
        for (std::size_t row = 0; row < m_places.size(); ++row)
          if (is_changed(number, rank, row) == changed) text += cell(number, rank, row, cells);
    }
    for (ExplainedMove const& move : round.moves)
      if (move.move.is_shared()) text += memory_arrows(move, cells);
    for (ExplainedMessage const& message : round.messages) {
      text += arrow(message.from, cells + height(message.from, message.source, message.contents), message.to,
                    cells + height(message.to, message.target, message.contents), "arrow",
                    cell_text(m_explanation, message.contents));
    }
    return text;
  }

  Contents const& held(std::size_t number, Rank rank, std::size_t row) const {
    return m_explanation.rounds[number].held[static_cast<std::size_t>(rank)][m_places[row]];
  }

  bool is_changed(std::size_t number, Rank rank, std::size_t row) const {
    return number > 0 && held(number, rank, row) != held(number - 1, rank, row);
  }

  std::string cell(std::size_t number, Rank rank, std::size_t row, double cells) const {
    Contents const& contents = held(number, rank, row);
    bool const changed = is_changed(number, rank, row);
    double const y = cells + cell_height * static_cast<double>(row);
    return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"{}\" "
                       "stroke-width=\"{}\"/>\n",
                       left(rank), y, m_cell_width, cell_height, fill(contents), changed ? "#1a1a1a" : "#9ca3af",
                       changed ? 2 : 1) +
           text_at(left(rank) + m_cell_width / 2, y + 0.68 * cell_height, cell_text(m_explanation, contents),
                   "class=\"cell\"");
  }

  /// White: nothing; green: complete; blue in between, the darker the more.
  std::string fill(Contents const& contents) const {
    std::size_t least = contents.empty() ? 0 : contents[0].ranks.size();
    for (Content const& content : contents) least = std::min(least, content.ranks.size());
    if (least == 0) return "#ffffff";
    Rank const contributors = m_explanation.contributors();
    if (contributors == 1) return "#dbeafe";
    if (static_cast<Rank>(least) >= contributors) return "#bbf7d0";
    double const share = static_cast<double>(least - 1) / contributors;
    auto const shade = [&](double light, double dark) { return std::lround(light + (dark - light) * share); };
    return fmt::format("#{:02x}{:02x}{:02x}", shade(0xef, 0x93), shade(0xf6, 0xc5), shade(0xff, 0xfd));
  }

  /// The row of the cell that a message's elements belong to on a rank.
  std::size_t row_of(Rank rank, Index element) const {
    std::vector<Range> const& places = m_explanation.places[static_cast<std::size_t>(rank)];
    for (std::size_t row = 0; row < m_places.size(); ++row) {
      Range const& range = places[m_places[row]];
      if (element >= range.begin && element < range.end) return row;
    }
    return 0;
  }

  /// The height of the middle of what a slice covers; of scratch: of where its elements belong.
  double height(Rank rank, Slice const& slice, Contents const& contents) const {
    bool const in_data = slice.buffer == BufferId::data;
    bool const something = !contents.empty();
    Index const first = in_data || !something ? slice.range.begin : contents.front().element;
    Index const last = in_data || !something ? slice.range.end - 1 : contents.back().element + contents.back().size - 1;
    auto const rows = static_cast<double>(row_of(rank, first) + row_of(rank, last));
    return cell_height * (rows / 2 + 0.5);
  }

  std::string arrow(Rank from, double y1, Rank to, double y2, std::string const& kind, std::string const& what) const {
    bool const rightwards = to > from;
    double const x1 = left(from) + (rightwards ? m_cell_width : 0);
    double const x2 = left(to) + (rightwards ? 0 : m_cell_width);
    // to a neighbour nearly straight; far ones in a bow, those to the left below those to the right
    double const bow = 12.0 * (std::abs(to - from) - 1) + 5;
    double const middle = (y1 + y2) / 2 + (rightwards ? -bow : bow);
    return fmt::format(
        "<path class=\"{}\" marker-end=\"url(#{}-tip)\" d=\"M{:.1f},{:.1f} Q{:.1f},{:.1f} {:.1f},{:.1f}\">"
        "<title>rank {} to rank {}: {}</title></path>\n",
        kind, kind, x1, y1, (x1 + x2) / 2, middle, x2, y2, from, to, escaped(what));
  }

  /// From every rank whose memory is read to every rank whose memory is written.
  std::string memory_arrows(ExplainedMove const& move, double cells) const {
    auto const owners = [&](Slice const& slice) {
      if (slice.owner == every_neighbour) return m_explanation.problem.topology.neighbours(move.rank);
      return std::vector{slice.owner == own_memory ? move.rank : slice.owner};
    };
    std::string text;
    for (Rank const from : owners(move.move.from))
      for (Rank const to : owners(move.move.to))
        if (from != to)
          text += arrow(from, cells + height(from, move.move.from, {}), to, cells + height(to, move.move.to, {}),
                        "memory", fmt::format("{} by rank {}", to_string(move.move.action), move.rank));
    return text;
  }

  Explanation const& m_explanation;
  std::vector<std::size_t> m_places;
  double m_cell_width = 0;
  double m_label_width = 0;
};

} // namespace

std::string explanation_svg(Explanation const& explanation) { return Picture(explanation).draw(); }

} // namespace trainstone
