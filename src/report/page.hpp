#pragma once

// A report as a list of blocks, and its two forms: Markdown with figures as files beside it, and one HTML page that
// contains everything, figures and style included, and loads nothing from outside. Pure functions; the page is
// well-formed XML, too. Does not know what reports are about.

#include <string>
#include <variant>
#include <vector>

namespace trainstone {

struct Heading {
  int level = 2; ///< 1: the report's title
  std::string text;
};

/// The tone of a line; colours in HTML, bold words in Markdown.
enum class Tone { plain, good, notice, bad };

struct Line {
  std::string text;
  Tone tone = Tone::plain;
};

struct Cell {
  Cell(std::string words, Tone how = Tone::plain) : text(std::move(words)), tone(how) {}
  Cell(char const* words) : text(words) {}
  std::string text;
  Tone tone = Tone::plain;
};

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

struct Figure {
  std::string name; ///< of its file, without ".svg"
  std::string svg;
  std::string caption; ///< also told to those who cannot see it
};

/// Lines that stay as they are, in letters of one width. The page shows them when the reader opens them.
struct Listing {
  std::string caption;
  std::string text; ///< each line with its end
};

using Block = std::variant<Heading, Line, Table, Figure, Listing>;
using Page = std::vector<Block>;

/// With references to `name`.svg beside it.
std::string page_markdown(Page const& page);
/// The first heading is its title.
std::string page_html(Page const& page);

} // namespace trainstone
