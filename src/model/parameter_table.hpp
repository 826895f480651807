#pragma once

// The parameters of a GPT as a value: name, shape, place in the flat parameter vector, group, initial value. Everything
// that owns, shards, sends, saves or updates parameters reads this table; nothing else knows where a tensor lies.
// Tensors form groups, which are shared out among owners. Groups form units, which travel. Holds no memory.

#include "comm/schedule/partition.hpp"
#include "model/config.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone {

/// The sixteen tensors of GPT-2, in the order of llm.c's files. The first two and the last two exist once, the others
/// once per block.
enum class Tensor {
  wte,      ///< (Vp, C) token table, also the head
  wpe,      ///< (context, C) position table
  ln1w,     ///< (C)
  ln1b,     ///< (C)
  qkvw,     ///< (3C, C)
  qkvb,     ///< (3C)
  attprojw, ///< (C, C)
  attprojb, ///< (C)
  ln2w,     ///< (C)
  ln2b,     ///< (C)
  fcw,      ///< (4C, C)
  fcb,      ///< (4C)
  fcprojw,  ///< (C, 4C)
  fcprojb,  ///< (C)
  lnfw,     ///< (C)
  lnfb      ///< (C)
};

inline constexpr int tensor_kinds = 16;

std::string_view to_string(Tensor tensor);

/// True for the twelve tensors that every block has.
bool is_per_block(Tensor tensor);

/// How a tensor starts: constant, or normal with mean 0 in its first `random_elements` elements and 0 behind them.
struct InitialValue {
  double constant = 0;
  double deviation = 0;
  std::int64_t random_elements = 0;
  std::int64_t first_counter =
      0; ///< of the first element; counts unpadded elements, so it is the same for every rank count
};

/// Which part of a whole tensor an entry of the table has, if slices cut it into equal parts.
struct Split {
  enum class Of {
    nothing,
    rows,
    columns,
    heads, ///< rows of queries, of keys and of values: of each a part, one behind the other
  };

  Of of = Of::nothing;
  std::int64_t parts = 1;
  std::int64_t part = 0; ///< the one that is here

  bool cuts() const { return of != Of::nothing; }
  bool operator==(Split const&) const = default;
};

/// How slices cut a tensor. Source: Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
/// Parallelism, arXiv:1909.08053.
Split::Of cut_of(Tensor tensor);
/// How ranks that share the features of the residual stream cut a tensor: along the dimension that slices do not cut.
Split::Of features_cut_of(Tensor tensor);

/// Rows and columns, with the padding of the vocabulary; vectors have one row. Of one slice and of one part of the
/// features, if these cut the tensor. \throws InputError if it cannot be cut so
std::pair<std::int64_t, std::int64_t> shape_of(Tensor tensor, GptConfig const& config, TensorSlices const& slices = {});

/// How the rows of a tensor, or its columns, are cut. They are so many equal groups, one behind the other: of each
/// group a part is here.
struct DimensionCut {
  std::int64_t groups = 1;
  std::int64_t parts = 1;
  std::int64_t part = 0;

  /// Where group `number` begins among all rows or columns, if a group has so many here.
  std::int64_t begin(std::int64_t number, std::int64_t length) const { return (number * parts + part) * length; }
};

/// Rows, columns and offset are of the part that is here; the initial value is of the whole tensor.
struct ParameterTensor {
  std::string name; ///< "wte", "block 3 qkvw", "block 3 qkvw slice 1"
  Tensor tensor;
  std::int64_t block; ///< -1 for the tensors outside of blocks
  std::int64_t group; ///< index into ParameterTable::groups
  std::int64_t rows;  ///< 1 for vectors
  std::int64_t columns;
  std::int64_t offset; ///< first element in the flat parameter vector
  bool is_matrix;      ///< weight decay "matrices" decays these
  InitialValue initial;
  Split split = {};              ///< by slices
  Split features = {};           ///< by parts of the residual stream's features
  std::int64_t whole_offset = 0; ///< first element of the whole tensor among its group's whole tensors

  std::int64_t size() const { return rows * columns; }
  std::int64_t whole_size() const { return size() * split.parts * features.parts; }
  /// A vector has one row, so its columns are cut.
  DimensionCut cut_of_rows() const {
    return cut_where([this](Split::Of of) { return !cuts_columns(of); });
  }
  DimensionCut cut_of_columns() const {
    return cut_where([this](Split::Of of) { return cuts_columns(of); });
  }

private:
  bool cuts_columns(Split::Of of) const { return of == Split::Of::columns || !is_matrix; }
  template <class Where>
  DimensionCut cut_where(Where const& where) const {
    for (Split const& one : {split, features})
      if (one.cuts() && where(one.of)) return {one.of == Split::Of::heads ? 3 : 1, one.parts, one.part};
    return {};
  }
};

/// Tensors of a group, side by side, that only ranks with other data share out: those of one slice, those of one part
/// of the features, those of both, or those that are whole. If nothing is cut, a group is one section. A section begins
/// at a multiple of norm_block in its group.
struct ParameterSection {
  static constexpr std::int64_t whole = -1;

  std::int64_t slice;                ///< of the whole model; whole: its tensors are not cut
  Range elements;                    ///< counted from the group's begin, without padding
  std::int64_t number = 0;           ///< among the sections of the whole model
  std::int64_t feature_part = whole; ///< whole: its tensors have all features, or none

  bool is_of_slice() const { return slice != whole; }
  bool is_of_part() const { return feature_part != whole; }

  bool operator==(ParameterSection const&) const = default;
};

/// A run of whole tensors of which every owner has a share. The groups are the token table, the position table, the
/// final norm, and every block. The token table is a group of its own because two parts use it, which may be on
/// different ranks.
struct ParameterGroup {
  std::string name; ///< "token table", "position table", "final norm", "block 3"
  std::int64_t offset;
  std::int64_t size;       ///< elements of its tensors
  std::int64_t padded;     ///< rounded up to ranks * norm_block; the elements behind sections are zero for ever
  std::int64_t whole_size; ///< elements of its whole tensors, without padding of the vocabulary: however tensors are
                           ///< split, and on any number of ranks
  std::int64_t number = 0; ///< among the groups of the whole model
  std::vector<ParameterSection> sections = {}; ///< in order

  /// Where its last section ends, counted from the group's begin.
  std::int64_t end() const { return sections.back().elements.end; }
  /// The elements behind sections, counted from the group's begin.
  std::vector<Range> padding() const;
};

/// ParameterGroup::number of the token table.
inline constexpr std::int64_t token_table_group = 0;

/// Groups side by side. They are gathered and reduced together. The units are root, which is the groups outside of
/// blocks, and every run of so many blocks. No unit has blocks of two chunks; the last one of a chunk may have fewer. A
/// stage of a pipeline in the middle has no root.
struct ParameterUnit {
  std::string name; ///< "root", "block 3", "blocks 2 to 3"
  std::int64_t first_group, last_group;
  std::int64_t offset;
  std::int64_t padded; ///< of all its groups

  bool has(std::int64_t group) const { return first_group <= group && group <= last_group; }
};

class ParameterTable {
public:
  /// The whole model's parameters, or some of its slices. \param[in] unit_blocks  of a unit, at most
  /// \throws InputError   if the configuration is not a model (find_problem of model/config.hpp), or if a tensor cannot
  ///                      be cut into so many slices
  ParameterTable(GptConfig const& config, std::int64_t ranks, TensorSlices const& slices = {},
                 std::int64_t unit_blocks = 1);
  /// The parameters that a stage reads: the token table for embed and for head, positions for embed, the final norm for
  /// head, and its blocks. Names and initial values are those of the whole model.
  ParameterTable(GptConfig const& config, std::int64_t ranks, ModelStage stage, TensorSlices const& slices = {},
                 std::int64_t unit_blocks = 1);

  std::vector<ParameterTensor> const& tensors() const { return m_tensors; }
  std::vector<ParameterGroup> const& groups() const { return m_groups; }
  std::vector<ParameterUnit> const& units() const { return m_units; }
  ModelStage const& stage() const { return m_stage; }
  TensorSlices const& slices() const { return m_slices; }
  /// Blocks of the whole model.
  std::int64_t layers() const { return m_config.layers; }
  /// The unit with a block's tensors; of -1, with those outside of blocks. \throws Error if it is not here
  std::int64_t unit_of(std::int64_t block) const;
  /// Where a tensor begins in its unit.
  std::int64_t offset_in_unit(ParameterTensor const& tensor) const {
    return tensor.offset - m_units[static_cast<std::size_t>(unit_of(tensor.block))].offset;
  }
  /// Complexity: O(log(blocks) + tensors of a block). \param[in] slice  of those that are here; not looked at if the
  /// tensor is not cut. \throws Error if it is not here
  ParameterTensor const& find(Tensor tensor, std::int64_t block = -1, std::int64_t slice = 0) const;

  /// Elements of the flat vector, padding included: the Ψ of every formula.
  std::int64_t size() const { return m_groups.back().offset + m_groups.back().padded; }
  /// Sections of the whole model: slices and stages that are not here, too.
  std::int64_t model_sections() const { return m_model_sections; }
  /// Parameters of the whole model as published: no padding of vocabulary or groups.
  std::int64_t model_parameters() const { return m_model_parameters; }

private:
  struct Members { ///< of a group
    std::string name;
    std::vector<Tensor> tensors;
    bool is_here;
  };

  void make_units(std::int64_t unit_blocks);
  void add_unit(std::string name, std::int64_t groups);
  std::int64_t groups_of_root() const { return std::ssize(m_groups) - std::ssize(m_stage.blocks); }
  std::int64_t place_of(std::int64_t block) const;
  void add_group(Members const& members, std::int64_t block, std::int64_t ranks);
  void add_sections(std::vector<ParameterTensor> const& members, bool by_slice, bool by_part, bool are_here);
  void add_section(std::vector<ParameterTensor> const& members, ParameterSection section);
  bool cuts(Tensor tensor, bool by_slice, bool by_part) const;

  GptConfig m_config;
  ModelStage m_stage;
  TensorSlices m_slices;
  std::vector<ParameterTensor> m_tensors;
  std::vector<ParameterGroup> m_groups;
  std::vector<ParameterUnit> m_units;
  std::vector<std::int64_t> m_unit_of_block; ///< by place among the blocks that are here
  std::vector<std::size_t> m_first_tensor;   ///< by group
  std::int64_t m_model_parameters = 0;
  std::int64_t m_model_groups = 0, m_model_sections = 0; ///< that the whole model has, so far
};

} // namespace trainstone
