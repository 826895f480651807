#include "parallel/program/activation_memory.hpp"

#include "model/part_lists.hpp"
#include "parallel/program/instruction.hpp"

#include <array>

namespace trainstone::Impl {

namespace {

struct PartActivations {
  std::set<Activation> read_by_forward, kept, read_by_backward;
};

/// Any number of chunks stands for all that are more than one.
GptOptions options_of(bool splits_loss) { return {.loss_chunks = splits_loss ? 2 : 1}; }

PartActivations const& of_kind(PartKind kind, bool splits_loss) {
  auto const make = [](bool splits) {
    std::array<PartActivations, part_kinds.size()> by_kind;
    GptOptions const options = options_of(splits);
    for (PartKind const each : part_kinds)
      by_kind[static_cast<std::size_t>(each)] = {read_by_forward(each, options), kept_for_backward(each, options),
                                                 read_by_backward(each, options)};
    return by_kind;
  };
  static std::array const whole = make(false), split = make(true);
  return (splits_loss ? split : whole)[static_cast<std::size_t>(kind)];
}

/// If the loss is split, logits are those of a chunk: the loss leaves them, and a piece of head's backward reads them.
std::set<Activation> without_logits(std::set<Activation> all, bool splits_loss) {
  if (splits_loss) all.erase(Activation::logits);
  return all;
}

} // namespace

ActivationMemory::ActivationMemory(PartTable const& parts)
    : m_parts(&parts),
      m_places(ModelStage::whole({.layers = parts.layers()}), {.recompute = parts.options().recompute}) {
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
  return first_missing(of_kind(one.kind, splits_loss()).read_by_forward, one, micro_batch);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_recompute(Index part, Index micro_batch) const {
  Part const one = (*m_parts)[part];
  return first_missing(read_by_recompute(one.kind, m_parts->recompute(one), {}), one, micro_batch);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_loss(Index micro_batch) const {
  return first_missing(read_by_loss(options_of(splits_loss())), {PartKind::head}, micro_batch);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_backward(Index part, Index micro_batch,
                                                                       Index chunk) const {
  Part const one = (*m_parts)[part];
  PlacedActivation const logits = place_of(Activation::logits, one);
  if (chunk != Instruction::none && m_contents[index(logits)] != Content{micro_batch, chunk}) return logits;
  return first_missing(without_logits(of_kind(one.kind, splits_loss()).read_by_backward, splits_loss()), one,
                       micro_batch);
}

void ActivationMemory::write(std::set<Activation> const& all, Part part, Index micro_batch) {
  for (Activation const what : all) {
    PlacedActivation const placed = place_of(what, part);
    m_contents[index(placed)] = content_of(placed, part, micro_batch);
  }
}

void ActivationMemory::keep(Index part, Index micro_batch) {
  Part const one = (*m_parts)[part];
  write(without_logits(of_kind(one.kind, splits_loss()).kept, splits_loss()), one, micro_batch);
}

void ActivationMemory::keep_logits(Index micro_batch, Index chunk) {
  m_contents[index(place_of(Activation::logits, {PartKind::head}))] = {micro_batch, chunk};
}

void ActivationMemory::recompute(Index part, Index micro_batch) {
  Part const one = (*m_parts)[part];
  write(recomputed(one.kind, m_parts->recompute(one), {}), one, micro_batch);
}

void ActivationMemory::drop(Index part) { keep(part, Instruction::none); }

void ActivationMemory::drop_all() { m_contents.assign(m_contents.size(), {Instruction::none, Instruction::none}); }

} // namespace trainstone::Impl
