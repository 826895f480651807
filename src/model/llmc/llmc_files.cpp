#include "model/llmc/llmc_files.hpp"

#include "core/error.hpp"
#include "core/types.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

namespace trainstone {

static_assert(std::endian::native == std::endian::little, "llm.c files are read and written as they lie in memory");

namespace {

using Header = std::array<std::int32_t, 256>;

constexpr Index header_bytes = sizeof(Header);
constexpr std::int32_t model_magic = 20240326;
constexpr std::int32_t state_magic = 20240327;
constexpr std::int32_t fp32_model_version = 3, bf16_model_version = 5;
constexpr std::int32_t state_version = 2;

/// A number of the header: where it is and the largest that is believed. The limits keep every product of sizes below
/// 2^62 bytes: L C (12 C + 13) + Vp C + T C elements, and B T V logits.
struct HeaderField {
  char const* name;
  std::size_t position;
  Index maximum;
};
// Named, because nvcc puts parentheses around a field's declarator, and g++ warns of them.
using ShapeMember = Index LlmcShape::*;
struct ShapeField : HeaderField {
  ShapeMember member;
};
constexpr std::array<ShapeField, 6> shape_fields{{
    {{"maximum sequence length", 2, Index{1} << 20}, &LlmcShape::context},
    {{"vocabulary", 3, Index{1} << 20}, &LlmcShape::vocab},
    {{"number of layers", 4, Index{1} << 16}, &LlmcShape::layers},
    {{"number of heads", 5, Index{1} << 20}, &LlmcShape::heads},
    {{"number of channels", 6, Index{1} << 20}, &LlmcShape::channels},
    {{"padded vocabulary", 7, Index{1} << 20}, &LlmcShape::padded_vocab},
}};
constexpr HeaderField batch_field{"batch", 2, Index{1} << 20};
constexpr HeaderField sequence_field{"sequence length", 3, Index{1} << 20};

constexpr Index position_bytes(std::size_t position) { return static_cast<Index>(position * sizeof(std::int32_t)); }

std::string describe_magic(std::int32_t magic) {
  switch (magic) {
  case model_magic: return "an llm.c model";
  case state_magic: return "an llm.c debug state";
  case 20240328: return "an llm.c tokenizer";
  case 20240520: return "an llm.c token shard";
  case 20240522: return "an llm.c evaluation file";
  case 20240527: return "an llm.c optimizer state";
  case 20240801: return "a Llama 3 token shard";
  default: return "not a file of llm.c";
  }
}

Header read_header(Impl::BinaryInput& file, std::int32_t magic) {
  if (file.size() < header_bytes)
    file.fail(file.size(), fmt::format("the file ends here, inside the header of {} bytes", header_bytes));
  Header header;
  file.read(0, std::as_writable_bytes(std::span(header)));
  if (header[0] != magic)
    file.fail(0, fmt::format("magic number {} ({}), expected {} ({})", header[0], describe_magic(header[0]), magic,
                             describe_magic(magic)));
  return header;
}

Index read_field(Impl::BinaryInput const& file, Header const& header, HeaderField const& field) {
  Index const value = header[field.position];
  if (value < 1 || value > field.maximum)
    file.fail(position_bytes(field.position), fmt::format("{} {}, expected 1 to {}", field.name, value, field.maximum));
  return value;
}

struct ModelHeader {
  LlmcShape shape;
  Storage storage;
};

ModelHeader read_model_header(Impl::BinaryInput& file) {
  Header const header = read_header(file, model_magic);
  if (header[1] != fp32_model_version && header[1] != bf16_model_version)
    file.fail(position_bytes(1), fmt::format("version {}, expected {} (fp32) or {} (bf16)", header[1],
                                             fp32_model_version, bf16_model_version));
  LlmcShape shape{};
  for (ShapeField const& field : shape_fields) shape.*field.member = read_field(file, header, field);
  if (shape.channels % shape.heads != 0)
    file.fail(position_bytes(6),
              fmt::format("number of channels {}, expected a multiple of the {} heads", shape.channels, shape.heads));
  if (shape.padded_vocab < shape.vocab)
    file.fail(position_bytes(7), fmt::format("padded vocabulary {}, expected at least the vocabulary {}",
                                             shape.padded_vocab, shape.vocab));
  return {shape, header[1] == bf16_model_version ? Storage::bf16 : Storage::fp32};
}

Index bytes_of(Storage storage, Index elements) { return elements * static_cast<Index>(bytes_per_value(storage)); }

Index float_bytes(Index elements) { return bytes_of(Storage::fp32, elements); }

Index slice_offset(LlmcTensor const& tensor, Index layer) {
  TRAINSTONE_REQUIRE(0 <= layer && layer < tensor.layers, "layer {} of {}, which has {}", layer, tensor.name,
                     tensor.layers);
  return tensor.offset + layer * tensor.extent();
}

/// Of a whole slice.
Index slice_offset(LlmcTensor const& tensor, Index layer, std::size_t elements) {
  TRAINSTONE_REQUIRE(static_cast<Index>(elements) == tensor.extent(), "{} elements for a slice of {}, which has {}",
                     elements, tensor.name, tensor.extent());
  return slice_offset(tensor, layer);
}

/// \throws InputError unless a file can be made there
AtomicFile make_output(std::filesystem::path const& path) {
  require_writable(path);
  try {
    return AtomicFile(path);
  } catch (Error const& problem) {
    throw InputError(problem.what());
  }
}

std::string last_system_error() { return std::generic_category().message(errno); }

} // namespace

std::array<LlmcTensor, 16> llmc_tensors(LlmcShape const& shape) {
  Index const l = shape.layers;
  Index const c = shape.channels;
  std::array<LlmcTensor, 16> tensors{{{"wte", 1, 2, shape.padded_vocab, c, 0},
                                      {"wpe", 1, 2, shape.context, c, 0},
                                      {"ln1w", l, 1, 1, c, 0},
                                      {"ln1b", l, 1, 1, c, 0},
                                      {"qkvw", l, 2, 3 * c, c, 0},
                                      {"qkvb", l, 1, 1, 3 * c, 0},
                                      {"attprojw", l, 2, c, c, 0},
                                      {"attprojb", l, 1, 1, c, 0},
                                      {"ln2w", l, 1, 1, c, 0},
                                      {"ln2b", l, 1, 1, c, 0},
                                      {"fcw", l, 2, 4 * c, c, 0},
                                      {"fcb", l, 1, 1, 4 * c, 0},
                                      {"fcprojw", l, 2, c, 4 * c, 0},
                                      {"fcprojb", l, 1, 1, c, 0},
                                      {"lnfw", 1, 1, 1, c, 0},
                                      {"lnfb", 1, 1, 1, c, 0}}};
  Index offset = 0;
  for (LlmcTensor& tensor : tensors) {
    tensor.offset = offset;
    offset += tensor.layers * tensor.extent();
  }
  return tensors;
}

Index llmc_parameter_count(LlmcShape const& shape) {
  LlmcTensor const last = llmc_tensors(shape).back();
  return last.offset + last.layers * last.extent();
}

namespace Impl {

BinaryInput::BinaryInput(std::filesystem::path path) : m_path(std::move(path)) {
  std::error_code error;
  bool const regular = std::filesystem::is_regular_file(m_path, error);
  TRAINSTONE_REQUIRE_INPUT(!error, "{}: cannot be read: {}", m_path.string(), error.message());
  TRAINSTONE_REQUIRE_INPUT(regular, "{}: is not a file", m_path.string());
  m_stream.open(m_path, std::ios::binary);
  TRAINSTONE_REQUIRE_INPUT(m_stream.is_open(), "{}: cannot be read: {}", m_path.string(), last_system_error());
  m_size = static_cast<Index>(std::filesystem::file_size(m_path, error));
  TRAINSTONE_REQUIRE_INPUT(!error, "{}: cannot be read: {}", m_path.string(), error.message());
}

void BinaryInput::read(Index offset, std::span<std::byte> out) {
  m_stream.seekg(offset);
  m_stream.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  if (!m_stream) fail(offset, fmt::format("{} bytes cannot be read here", out.size()));
}

void BinaryInput::require_size(Index expected, std::string const& what) const {
  if (m_size < expected) fail(m_size, fmt::format("the file ends here, but {} takes {} bytes", what, expected));
  if (m_size > expected) fail(expected, fmt::format("{} bytes too many, {} ends here", m_size - expected, what));
}

void BinaryInput::fail(Index offset, std::string const& message) const {
  throw InputError(fmt::format("{}: byte {}: {}", m_path.string(), offset, message));
}

} // namespace Impl

LlmcModelReader::LlmcModelReader(std::filesystem::path const& path) : m_file(path) {
  ModelHeader const header = read_model_header(m_file);
  m_shape = header.shape;
  m_storage = header.storage;
  m_file.require_size(header_bytes + bytes_of(m_storage, llmc_parameter_count(m_shape)),
                      fmt::format("a model of {} layers, {} channels, context {}, padded vocabulary {} in {}",
                                  m_shape.layers, m_shape.channels, m_shape.context, m_shape.padded_vocab,
                                  to_string(m_storage)));
}

void LlmcModelReader::read(LlmcTensor const& tensor, Index layer, std::span<float> out) {
  Index const offset = header_bytes + bytes_of(m_storage, slice_offset(tensor, layer, out.size()));
  if (m_storage == Storage::fp32) return m_file.read(offset, std::as_writable_bytes(out));
  std::vector<bf16> stored(out.size());
  m_file.read(offset, std::as_writable_bytes(std::span(stored)));
  std::ranges::transform(stored, out.begin(), [](bf16 value) { return to_float(value); });
}

LlmcModelWriter::LlmcModelWriter(std::filesystem::path const& path, LlmcShape const& shape, Storage storage)
    : m_file(make_output(path)), m_storage(storage), m_parameter_count(llmc_parameter_count(shape)) {
  TRAINSTONE_REQUIRE(storage != Storage::fp16, "llm.c has no model files in {}", to_string(storage));
  Header header{model_magic, storage == Storage::bf16 ? bf16_model_version : fp32_model_version};
  for (ShapeField const& field : shape_fields) {
    Index const value = shape.*field.member;
    TRAINSTONE_REQUIRE(1 <= value && value <= field.maximum, "{} {}, expected 1 to {}", field.name, value,
                       field.maximum);
    header[field.position] = static_cast<std::int32_t>(value);
  }
  TRAINSTONE_REQUIRE(shape.channels % shape.heads == 0 && shape.padded_vocab >= shape.vocab,
                     "{} channels in {} heads, vocabulary {} padded to {}", shape.channels, shape.heads, shape.vocab,
                     shape.padded_vocab);
  m_file.write(std::as_bytes(std::span(header)));
}

void LlmcModelWriter::write(LlmcTensor const& tensor, Index layer, Index first, std::span<float const> values) {
  auto const count = static_cast<Index>(values.size());
  TRAINSTONE_REQUIRE(0 <= first && count <= tensor.extent() - first,
                     "elements [{}, {}) of layer {} of {}, which has {}", first, first + count, layer, tensor.name,
                     tensor.extent());
  Index const begin = slice_offset(tensor, layer) + first;
  note_written(tensor, {begin, begin + count});
  auto const place = static_cast<std::uint64_t>(header_bytes + bytes_of(m_storage, begin));
  if (m_storage == Storage::fp32) {
    m_file.write_at(place, std::as_bytes(values));
  } else {
    std::vector<bf16> stored(values.size());
    std::ranges::transform(values, stored.begin(), [](float value) { return from_float<bf16>(value); });
    m_file.write_at(place, std::as_bytes(std::span<bf16 const>(stored)));
  }
}

/// Runs side by side become one.
void LlmcModelWriter::note_written(LlmcTensor const& tensor, Range run) {
  if (run.empty()) return;
  auto next = m_written.lower_bound(run.begin);
  bool const overlaps = (next != m_written.end() && next->first < run.end) ||
                        (next != m_written.begin() && std::prev(next)->second > run.begin);
  TRAINSTONE_REQUIRE(!overlaps, "elements of {} are written twice", tensor.name);
  if (next != m_written.end() && next->first == run.end) {
    run.end = next->second;
    next = m_written.erase(next);
  }
  if (next != m_written.begin() && std::prev(next)->second == run.begin)
    std::prev(next)->second = run.end;
  else
    m_written.emplace_hint(next, run.begin, run.end);
}

void LlmcModelWriter::finish() {
  Index written = 0;
  for (auto const& [begin, end] : m_written) written += end - begin;
  TRAINSTONE_REQUIRE(written == m_parameter_count, "{} of {} elements were written", written, m_parameter_count);
  m_file.commit();
}

LlmcStateReader::LlmcStateReader(std::filesystem::path const& path, LlmcShape const& shape)
    : m_file(path), m_shape(shape) {
  Header const header = read_header(m_file, state_magic);
  if (header[1] != state_version)
    m_file.fail(position_bytes(1), fmt::format("version {}, expected {} (fp32)", header[1], state_version));
  m_batch = read_field(m_file, header, batch_field);
  m_sequence = read_field(m_file, header, sequence_field);
  if (m_sequence > shape.context)
    m_file.fail(position_bytes(sequence_field.position),
                fmt::format("sequence length {}, expected at most the model's {}", m_sequence, shape.context));
  Index const rows = m_batch * m_sequence;
  Index const token_bytes = rows * static_cast<Index>(sizeof(std::int32_t));
  m_logits_offset = header_bytes + 2 * token_bytes;
  Index const loss_offset = m_logits_offset + float_bytes(rows * shape.vocab);
  m_gradients_offset = loss_offset + float_bytes(1);
  m_file.require_size(m_gradients_offset + float_bytes(llmc_parameter_count(shape)),
                      fmt::format("the state of {} x {} tokens of a model of {} parameters, vocabulary {}", m_batch,
                                  m_sequence, llmc_parameter_count(shape), shape.vocab));
  m_inputs = read_tokens(header_bytes);
  m_targets = read_tokens(header_bytes + token_bytes);
  m_file.read(loss_offset, std::as_writable_bytes(std::span(&m_loss, 1)));
}

std::vector<std::int32_t> LlmcStateReader::read_tokens(Index offset) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(m_batch * m_sequence));
  m_file.read(offset, std::as_writable_bytes(std::span(tokens)));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= m_shape.vocab)
      m_file.fail(offset + position_bytes(i), fmt::format("token {}, expected 0 to {}, as the vocabulary is {}",
                                                          tokens[i], m_shape.vocab - 1, m_shape.vocab));
  return tokens;
}

void LlmcStateReader::read_logits(Index first_row, std::span<float> out) {
  Index const rows = static_cast<Index>(out.size()) / m_shape.vocab;
  TRAINSTONE_REQUIRE(static_cast<Index>(out.size()) == rows * m_shape.vocab && 0 <= first_row &&
                         first_row + rows <= m_batch * m_sequence,
                     "{} elements from row {} of logits of {} rows of {}", out.size(), first_row, m_batch * m_sequence,
                     m_shape.vocab);
  m_file.read(m_logits_offset + float_bytes(first_row * m_shape.vocab), std::as_writable_bytes(out));
}

void LlmcStateReader::read_gradient(LlmcTensor const& tensor, Index layer, std::span<float> out) {
  m_file.read(m_gradients_offset + float_bytes(slice_offset(tensor, layer, out.size())), std::as_writable_bytes(out));
}

} // namespace trainstone
