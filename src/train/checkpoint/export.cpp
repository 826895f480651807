#include "train/checkpoint/export.hpp"

#include "model/llmc/llmc_parameters.hpp"
#include "train/checkpoint/stored_checkpoint.hpp"

#include <algorithm>
#include <vector>

namespace trainstone {

void export_model(StoredCheckpoint const& checkpoint, std::filesystem::path const& file) {
  CheckpointManifest const& manifest = checkpoint.manifest();
  for (std::size_t i = 0; i < manifest.files.size(); ++i) checkpoint.require_whole(i);
  ParameterWriter writer(file, manifest.model, ParameterTable(manifest.model, 1));
  std::vector<float> values(std::size_t{1} << 18); // so many are in memory at a time
  for (Index group = 0; group < std::ssize(manifest.groups); ++group) {
    Index const size = manifest.groups[static_cast<std::size_t>(group)].size;
    for (Index first = 0; first < size; first += std::ssize(values)) {
      std::span<float> const part =
          std::span(values).first(std::min(values.size(), static_cast<std::size_t>(size - first)));
      checkpoint.read(0, group, {first, first + std::ssize(part)}, part);
      writer.write(group, first, part);
    }
  }
  writer.finish();
}

} // namespace trainstone
