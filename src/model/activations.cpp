#include "model/activations.hpp"

#include "core/error.hpp"

namespace trainstone {

namespace {

/// Of a row of memory.
std::size_t row_of(PlacedActivation const& placed) {
  return static_cast<std::size_t>(placed.block - PlacedActivation::recomputed);
}

void* take(Arena& arena, PlacedActivation const& placed, Storage storage, Index elements) {
  std::string const name = to_string(placed);
  if (is_mask(placed.what)) return arena.vector<MaskByte>(name, elements).data();
  return take_vector(arena, is_statistic(placed.what) ? Storage::fp32 : storage, name, elements).data;
}

} // namespace

Activations::Activations(GptConfig const& config, MicroBatchShape shape, Arena& arena, Storage storage,
                         GptOptions const& options)
    : m_config(config),
      m_shape(shape),
      m_options(options),
      m_storage(storage),
      m_places(config.layers, options),
      m_memory(static_cast<std::size_t>(config.layers - PlacedActivation::recomputed)) {
  for (PlacedActivation const& placed : m_places.all())
    m_memory[row_of(placed)][static_cast<std::size_t>(placed.what)] =
        take(arena, placed, storage, extents(placed.what).elements());
}

StoredMatrix Activations::matrix(Activation what, Index block) const {
  auto const [rows, columns] = extents(what);
  StoredMatrix matrix;
  matrix.data = memory(what, block);
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.storage = m_storage;
  return matrix;
}

Vector<float> Activations::statistics(Activation what, Index block) const {
  return Vector<float>(static_cast<float*>(memory(what, block)), static_cast<std::size_t>(extents(what).elements()));
}

Matrix<MaskByte> Activations::mask(Activation what, Index block) const {
  auto* const data = static_cast<MaskByte*>(memory(what, block));
  if (data == nullptr) return {};
  auto const [rows, columns] = extents(what);
  return Matrix<MaskByte>(data, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

void* Activations::memory(Activation what, Index block) const {
  PlacedActivation const placed = m_places(what, block);
  return m_memory[row_of(placed)][static_cast<std::size_t>(placed.what)];
}

} // namespace trainstone
