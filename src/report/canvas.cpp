#include "report/canvas.hpp"

#include "report/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trainstone::Impl {

namespace {

// pixels
constexpr double least_width = 760;
constexpr double margin = 16;
constexpr double head = 44;
constexpr double plot_height = 300;
constexpr double text_height = 12;
constexpr double inset = 10; // between the frame and what is drawn
constexpr double legend_row = 20;
constexpr double swatch_width = 30;

/// Of a text of `text_height`.
double width_of_text(std::string const& text) { return width_of(text) * text_height / 13; }

std::string rule(double x1, double y1, double x2, double y2, char const* color) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2,
                     color);
}

std::string swatch_at(double x, double y, LegendEntry const& entry) {
  double const middle = x + swatch_width / 2;
  switch (entry.swatch) {
  case Swatch::bar: return bar_at(x + 4, y - 6, swatch_width - 8, 12, entry.look);
  case Swatch::band:
    return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"12\" fill=\"{}\"/>\n", x + 4, y - 6,
                       swatch_width - 8, band_color);
  case Swatch::mark: return mark_at(middle, y, entry.look);
  case Swatch::line:
  case Swatch::line_and_mark:
    return line_along(fmt::format("M{:.1f},{:.1f}h{:.1f}", x, y, swatch_width), entry.look.color, entry.look.dash) +
           (entry.swatch == Swatch::line ? std::string() : mark_at(middle, y, entry.look));
  }
  return {};
}

} // namespace

Look look_of(int number) {
  // colours of Okabe and Ito, without their yellow, which is hard to see on white
  static constexpr std::array colors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                        "#e69f00", "#56b4e9", "#000000", "#882255"};
  static constexpr std::array dashes = {"", "8 3", "2 3", "9 3 2 3", "5 2", "14 4", "3 2 8 2"};
  auto const index = static_cast<std::size_t>(number);
  return {colors[index % colors.size()], dashes[index % dashes.size()], number % 6, number % 3};
}

std::string mark_at(double x, double y, Look const& look) {
  auto const path = [&](char const* data, bool filled) {
    return fmt::format("<path d=\"M{:.1f},{:.1f}{}\" fill=\"{}\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", x, y, data,
                       filled ? look.color : "none", look.color);
  };
  switch (look.mark) {
  case 0: return path("m-3.5,0a3.5,3.5 0 1 0 7,0a3.5,3.5 0 1 0 -7,0z", true);
  case 1: return path("m-3.5,-3.5h7v7h-7z", true);
  case 2: return path("m0,-4.5l4.5,8h-9z", true);
  case 3: return path("m0,-5l4.5,5l-4.5,5l-4.5,-5z", false);
  case 4: return path("m-4,-4l8,8m0,-8l-8,8", false);
  default: return path("m-5,0h10m-5,-5v10", false);
  }
}

std::string bar_at(double x, double y, double width, double height, Look const& look) {
  std::string text = fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                                 x, y, width, height, look.color);
  constexpr double gap = 9;
  std::string lines;
  if (look.stripes == 1)
    for (double at = gap; at < height - 1; at += gap) lines += fmt::format("M{:.1f},{:.1f}h{:.1f}", x, y + at, width);
  if (look.stripes == 2)
    for (double at = gap; at < width - 1; at += gap) lines += fmt::format("M{:.1f},{:.1f}v{:.1f}", x + at, y, height);
  if (!lines.empty()) text += fmt::format("<path d=\"{}\" stroke=\"#ffffff\" fill=\"none\"/>\n", lines);
  return text;
}

std::string line_along(std::string const& data, char const* color, char const* dash) {
  std::string const dashes = *dash ? fmt::format(" stroke-dasharray=\"{}\"", dash) : std::string();
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{}/>\n",
                     data, color, dashes);
}

Canvas::Canvas(std::string title, PlotAxis const& x, std::vector<double> const& x_values, PlotAxis const& y,
               std::vector<double> const& y_values, bool bars)
    : m_title(std::move(title)), m_x_label(x.label), m_y_label(y.label), m_bars(bars) {
  m_width = std::max(least_width, 2 * margin + 1.2 * width_of(m_title));
  m_y.emplace(y, y_values, bottom() - (bars ? 0 : inset), top() + inset, 7);
  double widest = 0;
  for (std::string const& label : m_y->labels()) widest = std::max(widest, width_of_text(label));
  m_left = margin + text_height + 10 + widest + 8;
  double const side = bars ? 0 : inset;
  m_right = m_width - margin;
  m_x.emplace(x, x_values, m_left + side, m_right - side, 9);
  if (m_x->labels().empty()) return;
  double const beyond = m_x->at(m_x->ticks().back()) + width_of_text(m_x->labels().back()) / 2 - (m_width - 4);
  if (beyond <= 0) return;
  m_right -= beyond;
  m_x.emplace(x, x_values, m_left + side, m_right - side, 9);
}

double Canvas::top() const { return head; }
double Canvas::bottom() const { return head + plot_height; }

void Canvas::say(std::string const& text) {
  add(text_at((m_left + m_right) / 2, (top() + bottom()) / 2, text, "text-anchor=\"middle\" fill=\"#555555\""));
}

std::string Canvas::axes() const {
  std::string text;
  for (std::size_t i = 0; i < m_y->ticks().size(); ++i) {
    double const at = m_y->at(m_y->ticks()[i]);
    text += rule(m_left, at, m_right, at, "#dddddd");
    text += text_at(m_left - 8, at + 4, m_y->labels()[i], "text-anchor=\"end\"");
  }
  double free_from = 0;
  for (std::size_t i = 0; i < m_x->ticks().size(); ++i) {
    double const at = m_x->at(m_x->ticks()[i]);
    double const half = width_of_text(m_x->labels()[i]) / 2;
    if (at - half < free_from) continue;
    free_from = at + half + 6;
    if (!m_bars) text += rule(at, top(), at, bottom(), "#eeeeee");
    text += rule(at, bottom(), at, bottom() + 4, "#555555");
    text += text_at(at, bottom() + 18, m_x->labels()[i], "text-anchor=\"middle\"");
  }
  return text;
}

std::string Canvas::legend_below(std::vector<LegendEntry> const& entries, double& right, double& bottom) const {
  auto const width_of_entry = [](LegendEntry const& entry) {
    return swatch_width + 6 + width_of_text(entry.name) + 18;
  };
  for (LegendEntry const& entry : entries) right = std::max(right, m_left + width_of_entry(entry));
  std::string text;
  double x = m_left, y = bottom + legend_row / 2;
  for (LegendEntry const& entry : entries) {
    double const width = width_of_entry(entry);
    if (x > m_left && x + width > right) {
      x = m_left;
      y += legend_row;
    }
    text += swatch_at(x, y, entry);
    text += text_at(x + swatch_width + 6, y + 4, entry.name, "");
    x += width;
  }
  if (!entries.empty()) bottom = y + legend_row / 2;
  return text;
}

std::string Canvas::finished(std::vector<LegendEntry> const& legend) const {
  double end = bottom() + 46, width = m_width;
  std::string const names = legend_below(legend, width, end);
  std::string const middle = fmt::format("text-anchor=\"middle\" transform=\"rotate(-90 {:.1f} {:.1f})\"",
                                         margin + text_height, (top() + bottom()) / 2);
  return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
                     "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" font-family=\"sans-serif\" font-size=\"{2:.0f}\" "
                     "fill=\"#1a1a1a\">\n<title>{3}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
                     width, end + 6, text_height, escaped(m_title)) +
         text_at(margin, 26, m_title, "font-size=\"15\" font-weight=\"bold\"") + axes() + m_body +
         fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
                     "stroke=\"#555555\"/>\n",
                     m_left, top(), m_right - m_left, bottom() - top()) +
         text_at((m_left + m_right) / 2, bottom() + 38, m_x_label, "text-anchor=\"middle\"") +
         text_at(margin + text_height, (top() + bottom()) / 2, m_y_label, middle) + names + "</svg>\n";
}

} // namespace trainstone::Impl
