#pragma once

// How ranks access their files of state as a part of results and of machine files: its form there, written and read.

#include "core/files_of_ranks.hpp"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

namespace trainstone {

class JsonFile;

nlohmann::ordered_json files_json(FilesOfRanks const& files);

/// None if there is nothing at that place. \param[in] place  "/state_files"
/// \throws InputError if a value is not as files_json() writes it
std::optional<FilesOfRanks> read_files(JsonFile const& file, std::string const& place);

} // namespace trainstone
