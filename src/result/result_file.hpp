#pragma once

// Result files as the program reads them back: the inverse of result_json(), strict about every value that it takes.
// Leaves out values that reports do not use: origins of the deck's keys, kernels and checkpoints.

#include "result/result.hpp"

#include <map>
#include <string>

namespace trainstone {

class JsonFile;

struct ResultFile {
  std::string path;
  std::string time;                               ///< when it was written, UTC
  Result result;                                  ///< metrics that are null are left out
  std::map<std::string, std::string> deck_values; ///< of all keys, as the file writes them
};

/// \param[in] file  whose /kind is "run"
/// \throws InputError  naming the file and what is wrong: another schema_version, a value that is missing or of another
///                     type, arrays of samples of different length, a rate that the status does not have, a status that
///                     checks, network, window and samples do not prove
ResultFile read_result(JsonFile const& file);

} // namespace trainstone
