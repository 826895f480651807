#pragma once

// The files of llm.c: models (magic 20240326, version 3 in fp32 and 5 in bf16) are read and written, debug states
// (20240327, version 2) are read, tensor by tensor, so that no file has to fit into memory. Promises: a bad file is
// refused with InputError, which names file, byte offset and what would be right, before anything is allocated from its
// header; a written file appears under its name complete or not at all. Knows the files' order of tensors; does not
// know ours.
//
// Both files: 256 x int32, then the data; little endian, offsets 64-bit.

#include "comm/schedule/partition.hpp"
#include "core/atomic_file.hpp"
#include "core/index.hpp"
#include "core/storage.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

struct LlmcShape {
  Index context, vocab, layers, heads, channels, padded_vocab;
  bool operator==(LlmcShape const&) const = default;
};

/// One of the 16 tensors: `layers` slices of (rows, columns), one behind the other.
struct LlmcTensor {
  std::string_view name;
  Index layers;        ///< 1 or L
  int dimensions;      ///< of a slice: 1 (then rows is 1) or 2
  Index rows, columns; ///< of a slice
  Index offset;        ///< of the first slice, in elements from the first parameter of the file

  Index extent() const { return rows * columns; } ///< elements of one slice
};

/// The tensors in the file's order: wte (Vp, C), wpe (T, C), ln1w ln1b (C), qkvw (3C, C), qkvb, attprojw (C, C),
/// attprojb, ln2w, ln2b, fcw (4C, C), fcb, fcprojw (C, 4C), fcprojb, all per layer but the first two, lnfw, lnfb (C).
std::array<LlmcTensor, 16> llmc_tensors(LlmcShape const& shape);

/// Elements of all tensors together.
Index llmc_parameter_count(LlmcShape const& shape);

namespace Impl {

/// A file that is read at given byte offsets. Every problem throws InputError with name and offset.
class BinaryInput {
public:
  explicit BinaryInput(std::filesystem::path path);
  Index size() const { return m_size; }
  void read(Index offset, std::span<std::byte> out);
  /// Throws unless the file has exactly `expected` bytes; `what` says why it should.
  void require_size(Index expected, std::string const& what) const;
  [[noreturn]] void fail(Index offset, std::string const& message) const;

private:
  std::filesystem::path m_path;
  std::ifstream m_stream;
  Index m_size = 0;
};

} // namespace Impl

class LlmcModelReader {
public:
  /// Reads and checks the header and the file's size.
  explicit LlmcModelReader(std::filesystem::path const& path);
  LlmcShape const& shape() const { return m_shape; }
  Storage storage() const { return m_storage; } ///< fp32 or bf16
  /// Slice `layer` of a tensor of llmc_tensors(shape()), widened; `out` has tensor.extent() elements.
  void read(LlmcTensor const& tensor, Index layer, std::span<float> out);

private:
  Impl::BinaryInput m_file;
  LlmcShape m_shape{};
  Storage m_storage = Storage::fp32;
};

class LlmcModelWriter {
public:
  /// Throws InputError if the file cannot be made there; Error if the shape is one that the reader would refuse, or if
  /// `storage` is neither fp32 nor bf16. What follows throws Error if the file cannot be written: a full disk.
  LlmcModelWriter(std::filesystem::path const& path, LlmcShape const& shape, Storage storage = Storage::fp32);
  /// Elements [first, first + values.size()) of slice `layer` of a tensor of llmc_tensors(shape), rounded to bf16 if
  /// the file is in that. They come in any order. \throws Error if the slice has no such elements, or if one of them
  /// was written before
  void write(LlmcTensor const& tensor, Index layer, Index first, std::span<float const> values);
  /// Gives the file its name, replacing an older one. Without this call nothing stays. \throws Error if not every
  /// element was written
  void finish();

private:
  void note_written(LlmcTensor const& tensor, Range run);

  AtomicFile m_file;
  Storage m_storage;
  Index m_parameter_count;
  std::map<Index, Index> m_written; ///< runs of elements of all slices that were written: begin and end
};

/// A batch with its logits, loss and gradients, as an independent program computed them for one model.
class LlmcStateReader {
public:
  /// Reads header, tokens and loss and checks them and the file's size against the model's shape.
  LlmcStateReader(std::filesystem::path const& path, LlmcShape const& shape);
  Index batch() const { return m_batch; }
  Index sequence() const { return m_sequence; }
  std::vector<std::int32_t> const& inputs() const { return m_inputs; }   ///< (B, T), all below the vocabulary
  std::vector<std::int32_t> const& targets() const { return m_targets; } ///< (B, T), all below the vocabulary
  float loss() const { return m_loss; }
  /// Rows first_row, first_row + 1, ... of the logits (B T, V); `out` has a multiple of V elements.
  void read_logits(Index first_row, std::span<float> out);
  /// The gradient of slice `layer` of a tensor of llmc_tensors(shape).
  void read_gradient(LlmcTensor const& tensor, Index layer, std::span<float> out);

private:
  std::vector<std::int32_t> read_tokens(Index offset);

  Impl::BinaryInput m_file;
  LlmcShape m_shape;
  Index m_batch = 0, m_sequence = 0;
  Index m_logits_offset = 0, m_gradients_offset = 0; ///< in bytes
  std::vector<std::int32_t> m_inputs, m_targets;
  float m_loss = 0;
};

} // namespace trainstone
