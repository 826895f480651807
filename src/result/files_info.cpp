#include "result/files_info.hpp"

#include "core/json_text.hpp"
#include "result/json_file.hpp"

namespace trainstone {

using Json = nlohmann::ordered_json;

Json files_json(FilesOfRanks const& files) {
  return {{"folder", files.folder},
          {"ranks", files.ranks},
          {"io_uring_ranks", files.rings},
          {"direct_ranks", files.direct},
          {"why_no_io_uring", files.why_no_ring.empty() ? Json(nullptr) : Json(files.why_no_ring)}};
}

std::optional<FilesOfRanks> read_files(JsonFile const& file, std::string const& place) {
  if (!file.has(place)) return std::nullopt;
  FilesOfRanks files;
  files.folder = file.text(place + "/folder");
  files.ranks = file.count(place + "/ranks");
  files.rings = static_cast<std::int64_t>(file.amount(place + "/io_uring_ranks"));
  files.direct = static_cast<std::int64_t>(file.amount(place + "/direct_ranks"));
  if (std::string const why = place + "/why_no_io_uring"; file.has(why)) files.why_no_ring = file.text(why);
  return files;
}

} // namespace trainstone
