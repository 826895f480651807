#include "report/page.hpp"

#include "core/error.hpp"
#include "report/svg.hpp"

#include <algorithm>

namespace trainstone {

namespace {

// --- Markdown

/// The text as it is, wherever it stands: what means something to Markdown within a line, at a heading's end or as the
/// dialects of Git hosts have it gets a backslash, control characters become blanks. Blocks begin with words of ours,
/// so that marks of lists and quotes need none.
std::string marked_down(std::string const& text) {
  std::string result;
  for (char const c : text) {
    if (std::string_view("\\`*_[]<>&!|~#$").find(c) != std::string_view::npos) result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result;
}

std::string toned(std::string const& text, Tone tone) {
  return tone == Tone::plain || text.empty() ? marked_down(text) : "**" + marked_down(text) + "**";
}

/// The lines between fences that are longer than anything in them which could be taken for a fence.
std::string fenced(std::string const& text) {
  std::size_t longest = 2, run = 0;
  std::string lines;
  for (char const c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
    lines += static_cast<unsigned char>(c) < ' ' && c != '\n' ? ' ' : c;
  }
  std::string const fence(longest + 1, '`');
  return fence + "text\n" + lines + fence + '\n';
}

struct MarkdownWriter {
  std::string operator()(Heading const& heading) const {
    return std::string(static_cast<std::size_t>(heading.level), '#') + ' ' + marked_down(heading.text) + "\n\n";
  }
  std::string operator()(Line const& line) const { return toned(line.text, line.tone) + "\n\n"; }
  std::string operator()(Table const& table) const {
    std::string head = "|", rule = "|", rows;
    for (std::string const& column : table.columns) {
      head += ' ' + marked_down(column) + " |";
      rule += "---|";
    }
    for (auto const& row : table.rows) {
      rows += '|';
      for (Cell const& cell : row) rows += ' ' + toned(cell.text, cell.tone) + " |";
      rows += '\n';
    }
    return head + '\n' + rule + '\n' + rows + '\n';
  }
  std::string operator()(Figure const& figure) const {
    return fmt::format("![{}]({}.svg)\n\n", marked_down(figure.caption), figure.name);
  }
  std::string operator()(Listing const& listing) const {
    return marked_down(listing.caption) + ":\n\n" + fenced(listing.text) + '\n';
  }
};

// --- HTML

constexpr char const* page_style =
    "body{font-family:sans-serif;color:#1a1a1a;background:#ffffff;max-width:60rem;margin:1rem auto;padding:0 1rem;"
    "line-height:1.4}\n"
    "h1{font-size:1.5rem}h2{font-size:1.25rem;border-bottom:1px solid #bbbbbb;margin-top:2rem}h3{font-size:1.05rem}\n"
    "p{overflow-wrap:anywhere}\n"
    ".scroll{overflow-x:auto;margin:.8rem 0}\n"
    "table{border-collapse:collapse;font-size:.85rem}\n"
    "th,td{border:1px solid #cccccc;padding:.2rem .5rem;text-align:left;vertical-align:top}\n"
    "th{background:#f3f4f6}\n"
    ".good{color:#00603f;font-weight:bold}.notice{color:#7a4b00;font-weight:bold}.bad{color:#b00020;font-weight:bold}\n"
    "pre,summary{font-size:.85rem}summary{cursor:pointer}\n"
    "figure{margin:1rem 0}figcaption{font-size:.85rem;color:#444444}svg{max-width:100%;height:auto}\n"
    "@media print{body{max-width:none;margin:0}figure,tr{break-inside:avoid}td{overflow-wrap:anywhere}}\n";

std::string class_of(Tone tone) {
  switch (tone) {
  case Tone::plain: return "";
  case Tone::good: return " class=\"good\"";
  case Tone::notice: return " class=\"notice\"";
  case Tone::bad: return " class=\"bad\"";
  }
  return {};
}

struct HtmlWriter {
  std::string operator()(Heading const& heading) const {
    return fmt::format("<h{0}>{1}</h{0}>\n", heading.level, escaped(heading.text));
  }
  std::string operator()(Line const& line) const {
    return fmt::format("<p{}>{}</p>\n", class_of(line.tone), escaped(line.text));
  }
  std::string operator()(Table const& table) const {
    std::string text = "<div class=\"scroll\"><table>\n";
    if (std::ranges::any_of(table.columns, [](std::string const& column) { return !column.empty(); })) {
      text += "<thead><tr>";
      for (std::string const& column : table.columns) text += "<th>" + escaped(column) + "</th>";
      text += "</tr></thead>\n";
    }
    text += "<tbody>\n";
    for (auto const& row : table.rows) {
      text += "<tr>";
      for (Cell const& cell : row) text += fmt::format("<td{}>{}</td>", class_of(cell.tone), escaped(cell.text));
      text += "</tr>\n";
    }
    return text + "</tbody></table></div>\n";
  }
  std::string operator()(Figure const& figure) const {
    return fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", figure.svg, escaped(figure.caption));
  }
  std::string operator()(Listing const& listing) const {
    return fmt::format("<details>\n<summary>{}</summary>\n<pre class=\"scroll\">{}</pre>\n</details>\n",
                       escaped(listing.caption), escaped(listing.text));
  }
};

template <class Writer>
std::string written(Page const& page, Writer const& writer) {
  std::string text;
  for (Block const& block : page) text += std::visit(writer, block);
  return text;
}

} // namespace

std::string page_markdown(Page const& page) { return written(page, MarkdownWriter{}); }

std::string page_html(Page const& page) {
  auto const first =
      std::ranges::find_if(page, [](Block const& block) { return std::holds_alternative<Heading>(block); });
  TRAINSTONE_REQUIRE(first != page.end(), "a page of {} blocks without a heading", page.size());
  return fmt::format(
             "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
             "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
             "'unsafe-inline'\"/>\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
             escaped(std::get<Heading>(*first).text), page_style) +
         written(page, HtmlWriter{}) + "</body>\n</html>\n";
}

} // namespace trainstone
