#include "train/checkpoint/export.hpp"

#include "model/llmc_parameters.hpp"
#include "train/checkpoint/stored_checkpoint.hpp"

namespace trainstone {

void export_model(StoredCheckpoint const& checkpoint, std::filesystem::path const& file) {
  CheckpointManifest const& manifest = checkpoint.manifest();
  for (std::size_t i = 0; i < manifest.files.size(); ++i) checkpoint.require_whole(i);
  ParameterTable const table(manifest.model, 1);
  if (groups_of(table.groups()) != manifest.groups) checkpoint.refuse("its groups are not those of its model");
  std::vector<float> parameters(static_cast<std::size_t>(table.size()));
  Index number = 0;
  for (ParameterGroup const& group : table.groups()) {
    auto const all = std::span(parameters).subspan(static_cast<std::size_t>(group.offset));
    checkpoint.read(0, number++, {0, group.size}, all.first(static_cast<std::size_t>(group.size)));
  }
  save_parameters(file, manifest.model, table, parameters, Storage::fp32);
}

} // namespace trainstone
