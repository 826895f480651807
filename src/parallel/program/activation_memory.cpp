#include "parallel/program/activation_memory.hpp"

#include "model/part_lists.hpp"

#include <algorithm>
#include <array>

namespace trainstone::Impl {

namespace {

struct PartActivations {
  std::set<Activation> read_by_forward, kept, read_by_backward;
};

struct ModelActivations {
  std::array<PartActivations, part_kinds.size()> by_kind;
  std::set<Activation> read_by_loss;

  PartActivations const& of(PartKind kind) const { return by_kind[static_cast<std::size_t>(kind)]; }
};

/// If the loss is split, logits are of one chunk: the loss leaves them, and a piece of head's backward reads them.
/// What parts keep and what their backward reads is then listed without them. Any number of chunks stands for all that
/// are more than one.
ModelActivations make_lists(bool splits_loss) {
  GptOptions const options{.loss_chunks = splits_loss ? 2 : 1};
  ModelActivations lists{.by_kind = {}, .read_by_loss = read_by_loss(options)};
  for (PartKind const kind : part_kinds) {
    PartActivations& part = lists.by_kind[static_cast<std::size_t>(kind)];
    part = {read_by_forward(kind, options), kept_for_backward(kind, options), read_by_backward(kind, options)};
    if (!splits_loss) continue;
    part.kept.erase(Activation::logits);
    part.read_by_backward.erase(Activation::logits);
  }
  return lists;
}

ModelActivations const& lists_of(bool splits_loss) {
  static ModelActivations const whole = make_lists(false), split = make_lists(true);
  return splits_loss ? split : whole;
}

} // namespace

ActivationMemory::ActivationMemory(PartTable const& parts, ActivationCopies const& copies)
    : m_parts(&parts),
      m_places(parts.stage(), {.recompute = parts.options().recompute}, copies),
      m_copies(std::max({copies.slots, copies.inputs, copies.gradients})),
      m_contents(
          static_cast<std::size_t>((parts.layers() - PlacedActivation::recomputed) * activation_kinds * m_copies)) {}

PlacedActivation ActivationMemory::place_of(Activation what, Part part, ActivationBuffers const& buffers) const {
  return m_places(what, part.kind == PartKind::head ? m_parts->layers() : part.block, buffers);
}

/// Blocks share what they compute again. In a slot, blocks of different chunks share their memory. Chunks share inputs.
ActivationMemory::Content ActivationMemory::content_of(PlacedActivation const& placed, Index part,
                                                       Index micro_batch) const {
  bool const of_chunk = placed.what == Activation::input || placed.what == Activation::output;
  bool const of_block = placed.block != PlacedActivation::of_model;
  if (of_chunk) return {micro_batch, m_parts->chunk_of(part)};
  return {micro_batch, of_block ? (*m_parts)[part].block : Instruction::none};
}

std::size_t ActivationMemory::index(PlacedActivation const& placed) const {
  Index const row = placed.block - PlacedActivation::recomputed;
  return static_cast<std::size_t>((row * activation_kinds + static_cast<Index>(placed.what)) * m_copies + placed.copy);
}

std::size_t ActivationMemory::input_of(Instruction const& message) const {
  return index({Activation::input, PlacedActivation::of_model, message.buffers.input});
}

std::optional<PlacedActivation> ActivationMemory::first_missing(std::set<Activation> const& read, Index part,
                                                                Instruction const& by) const {
  for (Activation const what : read)
    if (PlacedActivation const placed = place_of(what, (*m_parts)[part], by.buffers);
        m_contents[index(placed)] != content_of(placed, part, by.micro_batch))
      return placed;
  return std::nullopt;
}

std::optional<PlacedActivation> ActivationMemory::missing_for_forward(Instruction const& forward) const {
  PartKind const kind = (*m_parts)[forward.subject].kind;
  return first_missing(lists_of(splits_loss()).of(kind).read_by_forward, forward.subject, forward);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_recompute(Instruction const& recompute) const {
  Part const part = (*m_parts)[recompute.subject];
  return first_missing(read_by_recompute(part.kind, m_parts->recompute(part), {}), recompute.subject, recompute);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_loss(Instruction const& loss) const {
  return first_missing(lists_of(splits_loss()).read_by_loss, m_parts->size() - 1, loss);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_backward(Instruction const& backward) const {
  Part const part = (*m_parts)[backward.subject];
  if (std::optional<Index> const chunk = chunk_of(backward, *m_parts)) {
    PlacedActivation const logits = place_of(Activation::logits, part, backward.buffers);
    if (m_contents[index(logits)] != Content{backward.micro_batch, *chunk}) return logits;
  }
  return first_missing(lists_of(splits_loss()).of(part.kind).read_by_backward, backward.subject, backward);
}

std::optional<PlacedActivation> ActivationMemory::missing_for_send(Instruction const& send) const {
  PlacedActivation output = m_places.chunk_output(send.piece);
  output.copy = send.buffers.slot;
  Index const part = m_parts->chunk_parts(send.piece).end - 1;
  if (m_contents[index(output)] == content_of(output, part, send.micro_batch)) return std::nullopt;
  return output;
}

void ActivationMemory::write(std::set<Activation> const& all, Instruction const& by, Index micro_batch) {
  for (Activation const what : all) {
    PlacedActivation const placed = place_of(what, (*m_parts)[by.subject], by.buffers);
    m_contents[index(placed)] = content_of(placed, by.subject, micro_batch);
  }
}

void ActivationMemory::keep(Instruction const& by, Index micro_batch) {
  PartKind const kind = (*m_parts)[by.subject].kind;
  write(lists_of(splits_loss()).of(kind).kept, by, micro_batch);
}

void ActivationMemory::keep_logits(Instruction const& loss) {
  Part const head{PartKind::head};
  m_contents[index(place_of(Activation::logits, head, loss.buffers))] = {loss.micro_batch,
                                                                         chunk_of(loss, *m_parts).value()};
}

void ActivationMemory::recompute(Instruction const& recompute) {
  Part const part = (*m_parts)[recompute.subject];
  write(recomputed(part.kind, m_parts->recompute(part), {}), recompute, recompute.micro_batch);
}

void ActivationMemory::drop_all() { m_contents.assign(m_contents.size(), {}); }

} // namespace trainstone::Impl
