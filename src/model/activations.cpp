#include "model/activations.hpp"

#include <algorithm>
#include <string>

namespace trainstone {

namespace {

void* take(Arena& arena, std::string const& name, Activation what, Storage storage, Index elements) {
  if (is_mask(what)) return arena.vector<MaskByte>(name, elements).data();
  return take_vector(arena, is_statistic(what) ? Storage::fp32 : storage, name, elements).data;
}

/// Of a copy.
Index memory_rows(GptConfig const& config) { return config.layers - PlacedActivation::recomputed; }

} // namespace

Activations::Activations(GptConfig const& config, MicroBatchShape shape, Arena& arena, Storage storage,
                         GptOptions const& options)
    : Activations(config, shape, arena, storage, options, ModelStage::whole(config)) {}

Activations::Activations(GptConfig const& config, MicroBatchShape shape, Arena& arena, Storage storage,
                         GptOptions const& options, ModelStage const& stage, ActivationCopies const& copies)
    : m_config(config), m_shape(shape), m_options(options), m_storage(storage), m_places(stage, options, copies) {
  Index const most = std::max({copies.slots, copies.inputs, copies.gradients});
  m_memory.resize(static_cast<std::size_t>(std::max<Index>(most, 1) * memory_rows(config)));
  for (PlacedActivation const& placed : m_places.all())
    m_memory[row_of(placed)][static_cast<std::size_t>(placed.what)] =
        take(arena, m_places.name(placed), placed.what, storage, extents(placed.what).elements());
}

StoredMatrix Activations::matrix(Activation what, Index block, ActivationBuffers const& buffers) const {
  auto const [rows, columns] = extents(what);
  StoredMatrix matrix;
  matrix.data = memory(what, block, buffers);
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.storage = m_storage;
  return matrix;
}

Vector<float> Activations::statistics(Activation what, Index block, ActivationBuffers const& buffers) const {
  return Vector<float>(static_cast<float*>(memory(what, block, buffers)),
                       static_cast<std::size_t>(extents(what).elements()));
}

Matrix<MaskByte> Activations::mask(Activation what, Index block, ActivationBuffers const& buffers) const {
  auto* const data = static_cast<MaskByte*>(memory(what, block, buffers));
  if (data == nullptr) return {};
  auto const [rows, columns] = extents(what);
  return Matrix<MaskByte>(data, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

void* Activations::memory(Activation what, Index block, ActivationBuffers const& buffers) const {
  PlacedActivation const placed = m_places(what, block, buffers);
  return m_memory[row_of(placed)][static_cast<std::size_t>(placed.what)];
}

std::size_t Activations::row_of(PlacedActivation const& placed) const {
  return static_cast<std::size_t>(placed.copy * memory_rows(m_config) + placed.block - PlacedActivation::recomputed);
}

} // namespace trainstone
