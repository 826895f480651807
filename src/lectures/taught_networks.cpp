#include "lectures/taught_networks.hpp"

#include "parallel/plan/recipe.hpp"

namespace trainstone {

namespace {

std::optional<double> least_bytes(NetworkRow const& row) {
  switch (row.division) {
  case StateDivision::none: return row.state;
  case StateDivision::evenly: return row.state / static_cast<double>(row.devices);
  case StateDivision::unknown: break;
  }
  return std::nullopt;
}

} // namespace

std::vector<NetworkRow> compare_taught_networks() {
  using enum StateDivision;
  std::vector<NetworkRow> rows{
      {"FlexFlow", "Hybrid", "64 GPUs", "24M*", 64, 24e6, unknown, 0, {}},
      {"PipeDream", "Inter-Layer", "16 GPUs", "138M", 16, 138e6, evenly, 0, {}},
      {"DDP", "Data", "256 GPUs", "345M", 256, 345e6, none, 0, {}},
      {"GPipe", "Inter-Layer", "8 GPUs", "557M", 8, 557e6, evenly, 0, {}},
      {"MeshTensorFlow", "Intra-Layer", "512-core TPUv2", "4.9B", 512, 4.9e9, evenly, 0, {}},
      {"Megatron", "Intra-Layer", "512 GPUs", "8.3B", 512, 8.3e9, evenly, 0, {}},
      {"TorchGPipe", "Inter-Layer", "8 GPUs", "15.8B", 8, 15.8e9, evenly, 0, {}},
      {"KARMA", "Data", "2048 GPUs", "17B", 2048, 17e9, none, 0, {}},
      {"LBANN", "Data", "3072 CPUs", "78.6B", 3072, 78.6e9, none, 0, {}},
      {"ZeRO", "Data", "400 GPUs", "100B", 400, 100e9, evenly, 0, {}}, // stage 3
  };
  for (NetworkRow& row : rows) {
    row.state = static_cast<double>(recipe(RecipeName::mixed16).total()) * row.parameters;
    row.least = least_bytes(row);
  }
  return rows;
}

} // namespace trainstone
