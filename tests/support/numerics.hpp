#pragma once

// How far results were from their references: the largest error and the largest share of its bound of every comparison
// in a test case. Written as JSON where TRAINSTONE_NUMERICS names a file, so that reports can show what a host and a
// device make of the same kernels. Does not judge: the comparison does.

#include <string>

namespace trainstone::test {

/// One element of a comparison in the test case that runs.
void note_error(double error, double bound);

/// A test case begins; all ended: writes the file, if one is named.
void begin_numerics(std::string const& test_case);
void write_numerics();

} // namespace trainstone::test
