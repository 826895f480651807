#pragma once

// The parts of a model as a table: embed, attention 0, mlp 0, attention 1, ... , head. A part is computed together. It
// goes from the residual stream to the residual stream, or begins or ends it. The table says which unit of parameters a
// part reads, and which ranges of the unit's gradient its backward writes and completes, in order. Plain values without
// memory; the loss is no part.

#include "comm/schedule/partition.hpp"
#include "core/index.hpp"
#include "model/parameter_table.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone {

enum class PartKind {
  embed,     ///< tokens and positions become the residual stream
  attention, ///< the first half of a block: norm, attention, its projection, residual
  mlp,       ///< the second half: two products, residual
  head,      ///< the last norm, and the logits
};

inline constexpr std::array part_kinds{PartKind::embed, PartKind::attention, PartKind::mlp, PartKind::head};

struct Part {
  PartKind kind;
  Index block = -1; ///< of attention and mlp

  bool operator==(Part const&) const = default;
};

/// "embed", "attention", "mlp", "head"
std::string_view to_string(PartKind kind);
/// "embed", "attention 3", "mlp 3", "head"
std::string to_string(Part part);

/// embed, attention 0, mlp 0, ... , head: the order of forward.
std::vector<Part> parts(Index layers);
/// Of these, the stage's.
std::vector<Part> parts(ModelStage const& stage);
/// How many blocks each chunk has, also if ModelStage::chunks is empty. \throws Error if they have not all blocks in
/// sum
std::vector<Index> blocks_by_chunk(ModelStage const& stage);

/// A piece of a part's backward (part_pieces of part_kernels.hpp), and what it does with the unit's gradient.
struct BackwardPiece {
  std::vector<Range> written;
  Index complete_from; ///< nothing is added later in the micro-batch to the elements from here on

  bool writes(Range const& elements) const {
    return std::ranges::any_of(written, [&](Range const& range) { return range.overlaps(elements); });
  }
};

/// The parts of a stage, numbered in the order of forward.
class PartTable {
public:
  PartTable() = default;
  /// \param[in] options  say which blocks compute what again
  explicit PartTable(ParameterTable const& table, GptOptions options = {});

  Index size() const { return std::ssize(m_parts); }
  Part operator[](Index number) const { return m_parts[static_cast<std::size_t>(number)].part; }
  /// The unit whose parameters the part reads: root for embed and head (embed's backward reads none). Its gradient is
  /// the one that backward writes, too.
  Index unit(Index number) const { return m_parts[static_cast<std::size_t>(number)].unit; }

  ModelStage const& stage() const { return m_stage; }
  bool has_head() const { return m_stage.head; }
  Index chunks() const { return std::ssize(m_chunks); }
  /// The numbers of the parts of a chunk (ModelStage::chunks): embed, blocks, head.
  Range chunk_parts(Index chunk) const { return m_chunks[static_cast<std::size_t>(chunk)]; }
  /// The chunk of a part.
  Index chunk_of(Index number) const {
    return std::ranges::upper_bound(m_chunks, number, {}, &Range::end) - m_chunks.begin();
  }

  /// The parts that read a unit, in the order of forward.
  std::vector<Index> const& of_unit(Index unit) const { return m_of_unit[static_cast<std::size_t>(unit)]; }
  /// Whether the part's backward is the first one that writes its unit's gradient.
  bool begins(Index number) const { return of_unit(unit(number)).back() == number; }

  /// Blocks of the whole model.
  Index layers() const { return m_layers; }
  /// What the part's block computes again before its backward.
  Recompute recompute(Part part) const { return part.block < 0 ? Recompute::none : m_options.recompute_of(part.block); }
  GptOptions const& options() const { return m_options; }

  /// The pieces of backward, in order. Those of a unit's blocks go from the end of the unit to its begin. Head writes
  /// the token table and the final norm. If embed is here, too, head completes nothing: embed adds to the token table.
  std::vector<BackwardPiece> const& backward(Index number) const {
    PlacedPart const& placed = m_parts[static_cast<std::size_t>(number)];
    return m_backward[static_cast<std::size_t>(placed.place)][static_cast<std::size_t>(placed.part.kind)];
  }

private:
  struct PlacedPart {
    Part part;
    Index unit;
    Index place; ///< of its block among those of the unit; 0 of parts without block
  };
  using Pieces = std::array<std::vector<BackwardPiece>, part_kinds.size()>;

  std::vector<BackwardPiece>& at(PartKind kind) { return m_backward.front()[static_cast<std::size_t>(kind)]; }
  void add_chunks(ModelStage const& stage);
  void add_root_pieces(ParameterTable const& table);
  void add_block_pieces(ParameterTable const& table);

  Index m_layers = 0;
  ModelStage m_stage;
  GptOptions m_options;
  std::vector<PlacedPart> m_parts;
  std::vector<Range> m_chunks; ///< of numbers of parts
  std::vector<std::vector<Index>> m_of_unit;
  std::vector<Pieces> m_backward = std::vector<Pieces>(1); ///< by place; the same in every unit
};

} // namespace trainstone
