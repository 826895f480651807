#pragma once

// What pictures are written with: text in SVG. Pure functions. Widths are estimates for the sans-serif letters of the
// viewer.

#include <string>

namespace trainstone {

/// With &, <, > and quotes as XML wants them, in attributes, too; control characters, which it has none for, as
/// question marks.
std::string escaped(std::string const& text);

/// A text that begins at (x, y), or is centred there if its class says so. \param[in] style further attributes
std::string text_at(double x, double y, std::string const& text, std::string const& style);

/// About as many pixels as a text of 13 pixels' height is wide.
double width_of(std::string const& text);

} // namespace trainstone
