#include "parallel/program/activation_memory.hpp"

#include "model/part_lists.hpp"
#include "parallel/program/instruction.hpp"

#include <array>

namespace trainstone::Impl {

namespace {

struct PartActivations {
  std::set<Activation> read_by_forward, kept, read_by_backward;
};

PartActivations const& of_kind(PartKind kind) {
  static std::array const all = [] {
    std::array<PartActivations, part_kinds.size()> by_kind;
    for (PartKind const each : part_kinds)
      by_kind[static_cast<std::size_t>(each)] = {read_by_forward(each, {}), kept_for_backward(each, {}),
                                                 read_by_backward(each, {})};
    return by_kind;
  }();
  return all[static_cast<std::size_t>(kind)];
}

} // namespace

ActivationMemory::ActivationMemory(PartTable const& parts)
    : m_parts(&parts),
      m_micro_batches(static_cast<std::size_t>((layers() + 1) * activation_kinds), Instruction::none) {}

PlacedActivation ActivationMemory::place_of(Activation what, Part part) const {
  return in_memory(what, part.kind == PartKind::head ? layers() : part.block);
}

std::size_t ActivationMemory::index(PlacedActivation const& placed) {
  return static_cast<std::size_t>((placed.block + 1) * activation_kinds + static_cast<Index>(placed.what));
}

std::optional<PlacedActivation> ActivationMemory::first_missing(std::set<Activation> const& read, Part part,
                                                                Index micro_batch) const {
  for (Activation const what : read)
    if (PlacedActivation const placed = place_of(what, part); m_micro_batches[index(placed)] != micro_batch)
      return placed;
  return std::nullopt;
}

std::optional<PlacedActivation> ActivationMemory::missing_for_forward(Index part, Index micro_batch) const {
  Part const one = (*m_parts)[part];
  return first_missing(of_kind(one.kind).read_by_forward, one, micro_batch);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_loss(Index micro_batch) const {
  static std::set<Activation> const read = read_by_loss({});
  return first_missing(read, {PartKind::head}, micro_batch);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_backward(Index part, Index micro_batch) const {
  Part const one = (*m_parts)[part];
  return first_missing(of_kind(one.kind).read_by_backward, one, micro_batch);
}

void ActivationMemory::keep(Index part, Index micro_batch) {
  Part const one = (*m_parts)[part];
  for (Activation const what : of_kind(one.kind).kept) m_micro_batches[index(place_of(what, one))] = micro_batch;
}

void ActivationMemory::drop(Index part) { keep(part, Instruction::none); }

void ActivationMemory::drop_all() { m_micro_batches.assign(m_micro_batches.size(), Instruction::none); }

} // namespace trainstone::Impl
