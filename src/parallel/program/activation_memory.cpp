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
    : m_parts(&parts), m_places(parts.layers(), {.recompute = parts.options().recompute}) {
  Index const rows = parts.layers() - PlacedActivation::recomputed;
  m_contents.resize(static_cast<std::size_t>(rows * activation_kinds));
  drop_all();
}

PlacedActivation ActivationMemory::place_of(Activation what, Part part) const {
  return m_places(what, part.kind == PartKind::head ? m_parts->layers() : part.block);
}

ActivationMemory::Content ActivationMemory::content_of(PlacedActivation const& placed, Part part, Index micro_batch) {
  return {micro_batch, placed.block == PlacedActivation::recomputed ? part.block : Instruction::none};
}

std::size_t ActivationMemory::index(PlacedActivation const& placed) {
  Index const row = placed.block - PlacedActivation::recomputed;
  return static_cast<std::size_t>(row * activation_kinds + static_cast<Index>(placed.what));
}

std::optional<PlacedActivation> ActivationMemory::first_missing(std::set<Activation> const& read, Part part,
                                                                Index micro_batch) const {
  for (Activation const what : read)
    if (PlacedActivation const placed = place_of(what, part);
        m_contents[index(placed)] != content_of(placed, part, micro_batch))
      return placed;
  return std::nullopt;
}

std::optional<PlacedActivation> ActivationMemory::missing_for_forward(Index part, Index micro_batch) const {
  Part const one = (*m_parts)[part];
  return first_missing(of_kind(one.kind).read_by_forward, one, micro_batch);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_recompute(Index part, Index micro_batch) const {
  Part const one = (*m_parts)[part];
  return first_missing(read_by_recompute(one.kind, m_parts->recompute(one), {}), one, micro_batch);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_loss(Index micro_batch) const {
  static std::set<Activation> const read = read_by_loss({});
  return first_missing(read, {PartKind::head}, micro_batch);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_backward(Index part, Index micro_batch) const {
  Part const one = (*m_parts)[part];
  return first_missing(of_kind(one.kind).read_by_backward, one, micro_batch);
}

void ActivationMemory::write(std::set<Activation> const& all, Part part, Index micro_batch) {
  for (Activation const what : all) {
    PlacedActivation const placed = place_of(what, part);
    m_contents[index(placed)] = content_of(placed, part, micro_batch);
  }
}

void ActivationMemory::keep(Index part, Index micro_batch) {
  Part const one = (*m_parts)[part];
  write(of_kind(one.kind).kept, one, micro_batch);
}

void ActivationMemory::recompute(Index part, Index micro_batch) {
  Part const one = (*m_parts)[part];
  write(recomputed(one.kind, m_parts->recompute(one), {}), one, micro_batch);
}

void ActivationMemory::drop(Index part) { keep(part, Instruction::none); }

void ActivationMemory::drop_all() { m_contents.assign(m_contents.size(), {Instruction::none, Instruction::none}); }

} // namespace trainstone::Impl
