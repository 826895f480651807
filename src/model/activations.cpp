#include "model/activations.hpp"

#include <algorithm>
#include <string>

namespace trainstone {

namespace {

void* take(Arena& arena, std::string const& name, Activation what, Storage storage, Index elements) {
  if (is_mask(what)) return arena.vector<MaskByte>(name, elements).data();
  if (is_fp64(what)) return arena.vector<double>(name, elements).data();
  return take_vector(arena, storage, name, elements).data;
}

/// Of a copy.
Index memory_rows(GptConfig const& config) { return config.layers - PlacedActivation::recomputed; }

} // namespace

Activations::Activations(GptConfig const& config, MicroBatchShape shape, Arena& arena, Storage storage,
                         GptOptions const& options)
    : Activations(config, shape, arena, storage, options, ModelStage::whole(config)) {}

Activations::Activations(GptConfig const& config, MicroBatchShape shape, Arena& arena, Storage storage,
                         GptOptions const& options, ModelStage const& stage, ActivationCopies const& copies,
                         Arena* exchanged)
    : m_config(config), m_shape(shape), m_options(options), m_storage(storage), m_places(stage, options, copies) {
  std::vector<PlacedActivation> const all = m_places.all(storage);
  Index matrices = 1;
  for (PlacedActivation const& placed : all) matrices = std::max(matrices, placed.number + 1);
  m_memory.resize(static_cast<std::size_t>(matrices * memory_copies() * memory_rows(config)));
  ExchangedActivations const exchanges(options, storage);
  for (PlacedActivation const& placed : all) {
    bool const apart = exchanged != nullptr && exchanges.has(ActivationSet::exchanged, placed);
    m_memory[row_of(placed)][static_cast<std::size_t>(placed.what)] =
        take(apart ? *exchanged : arena, m_places.name(placed), placed.what, storage_of(placed.what, options, storage),
             extents(placed.what).elements());
  }
}

StoredMatrix Activations::matrix(Activation what, Index block, ActivationBuffers const& buffers, Index number) const {
  auto const [rows, columns] = extents(what);
  StoredMatrix matrix;
  matrix.data = memory(what, block, buffers, number);
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.storage = storage_of(what, m_options, m_storage);
  return matrix;
}

Vector<float> Activations::statistics(Activation what, Index block, ActivationBuffers const& buffers,
                                      Index number) const {
  return Vector<float>(static_cast<float*>(memory(what, block, buffers, number)),
                       static_cast<std::size_t>(extents(what).elements()));
}

Matrix<double> Activations::doubles(Activation what) const {
  auto const [rows, columns] = extents(what);
  return Matrix<double>(static_cast<double*>(memory(what, PlacedActivation::of_model, {}, 0)),
                        static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

Matrix<MaskByte> Activations::mask(Activation what, Index block, ActivationBuffers const& buffers, Index number) const {
  auto* const data = static_cast<MaskByte*>(memory(what, block, buffers, number));
  if (data == nullptr) return {};
  auto const [rows, columns] = extents(what);
  return Matrix<MaskByte>(data, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

void* Activations::memory(Activation what, Index block, ActivationBuffers const& buffers, Index number) const {
  PlacedActivation const placed = m_places(what, block, buffers, number);
  return m_memory[row_of(placed)][static_cast<std::size_t>(placed.what)];
}

Index Activations::memory_copies() const {
  ActivationCopies const& copies = m_places.copies();
  return std::max({copies.slots, copies.inputs, copies.gradients, Index{1}});
}

std::size_t Activations::row_of(PlacedActivation const& placed) const {
  Index const copy = placed.number * memory_copies() + placed.copy;
  return static_cast<std::size_t>(copy * memory_rows(m_config) + placed.block - PlacedActivation::recomputed);
}

} // namespace trainstone
