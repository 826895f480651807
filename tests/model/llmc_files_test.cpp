#include "core/error.hpp"
#include "core/types.hpp"
#include "model/llmc/llmc_files.hpp"
#include "support/compare.hpp"
#include "support/file_size_limit.hpp"
#include "support/fixtures.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

using Bytes = std::vector<char>;

/// No constructor: nvcc 13.0 does not end on a REQUIRE in one.
std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "trainstone-llmc-XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  return name;
}

/// A folder of this test that goes with it.
class TemporaryFolder {
public:
  TemporaryFolder() : m_path(make_folder()) {}
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(m_path); }
  std::filesystem::path operator/(char const* name) const { return m_path / name; }
  auto files() const { return std::distance(std::filesystem::directory_iterator(m_path), {}); }

private:
  std::filesystem::path m_path;
};

Bytes read_bytes(std::filesystem::path const& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write_bytes(std::filesystem::path const& path, Bytes const& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void set_number(Bytes& bytes, std::size_t offset, std::int32_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

std::vector<std::vector<float>> read_slices(std::filesystem::path const& path) {
  LlmcModelReader reader(path);
  std::vector<std::vector<float>> slices;
  for (LlmcTensor const& tensor : llmc_tensors(reader.shape()))
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      slices.emplace_back(tensor.extent());
      reader.read(tensor, layer, slices.back());
    }
  return slices;
}

void write_slices(std::filesystem::path const& path, LlmcShape const& shape,
                  std::vector<std::vector<float>> const& slices, Storage storage = Storage::fp32) {
  LlmcModelWriter writer(path, shape, storage);
  auto slice = slices.begin();
  for (LlmcTensor const& tensor : llmc_tensors(shape))
    for (Index layer = 0; layer < tensor.layers; ++layer) writer.write(tensor, layer, 0, *slice++);
  writer.finish();
}

/// What reading the file says.
std::string model_error(std::filesystem::path const& path) {
  try {
    LlmcModelReader{path};
  } catch (InputError const& error) {
    CHECK(error.code() == ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

std::string state_error(std::filesystem::path const& path, LlmcShape const& shape) {
  try {
    LlmcStateReader(path, shape);
  } catch (InputError const& error) {
    return error.what();
  }
  return "accepted";
}

} // namespace

TEST_CASE("llm.c tensors follow each other in the file's order", "[llmc]") {
  LlmcShape const shape{.context = 19, .vocab = 97, .layers = 3, .heads = 3, .channels = 36, .padded_vocab = 128};
  auto const tensors = llmc_tensors(shape);
  Index offset = 0;
  for (LlmcTensor const& tensor : tensors) {
    CHECK(tensor.offset == offset);
    offset += tensor.layers * tensor.extent();
  }
  // Vp C + T C + L (12 C^2 + 13 C) + 2 C
  CHECK(llmc_parameter_count(shape) == 128 * 36 + 19 * 36 + 3 * (12 * 36 * 36 + 13 * 36) + 2 * 36);
  CHECK(tensors[12].name == "fcprojw");
  CHECK(tensors[12].rows == 36);
  CHECK(tensors[12].columns == 144);
}

TEST_CASE("llm.c parameters of GPT-2 XL and of a huge model are counted in 64 bits", "[llmc]") {
  CHECK(llmc_parameter_count({1024, 50257, 48, 25, 1600, 50257}) == 1'557'611'200);
  CHECK(llmc_parameter_count({1 << 20, 1 << 20, 1 << 16, 1, 1 << 20, 1 << 20}) > Index{1} << 59);
}

TEST_CASE("a fixture's model that is read and written has the same bytes", "[llmc]") {
  auto const name = GENERATE(from_range(fixture_names));
  TemporaryFolder const folder;
  std::filesystem::path const original = find_fixture(name).model;
  write_slices(folder / "model.bin", LlmcModelReader(original).shape(), read_slices(original));
  CHECK(read_bytes(folder / "model.bin") == read_bytes(original));
  CHECK(folder.files() == 1);
}

TEST_CASE("a model that is written and read has the same bits, whatever they are", "[llmc]") {
  TemporaryFolder const folder;
  LlmcShape const shape{.context = 1, .vocab = 1, .layers = 2, .heads = 1, .channels = 3, .padded_vocab = 2};
  std::vector<std::vector<float>> slices;
  std::uint32_t bits = 0x7f800000u; // infinity, then NaNs
  for (LlmcTensor const& tensor : llmc_tensors(shape))
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      slices.emplace_back(tensor.extent());
      for (float& value : slices.back()) {
        std::memcpy(&value, &bits, sizeof(value));
        bits += 0x01234567u;
      }
    }
  write_slices(folder / "model.bin", shape, slices);
  CHECK(LlmcModelReader(folder / "model.bin").shape() == shape);
  std::vector<std::vector<float>> const read = read_slices(folder / "model.bin");
  REQUIRE(read.size() == slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i)
    CHECK(std::memcmp(read[i].data(), slices[i].data(), slices[i].size() * sizeof(float)) == 0);
}

TEST_CASE("a damaged llm.c model is refused with file, byte offset and what would be right", "[llmc]") {
  struct Damage {
    std::size_t offset;
    std::int32_t value;
    char const* message;
  };
  auto const damage = GENERATE(values<Damage>({
      {0, 1, "byte 0: magic number 1 (not a file of llm.c), expected 20240326 (an llm.c model)"},
      {0, 20240327, "byte 0: magic number 20240327 (an llm.c debug state), expected 20240326"},
      {4, 4, "byte 4: version 4, expected 3 (fp32) or 5 (bf16)"},
      {8, 0, "byte 8: maximum sequence length 0, expected 1 to 1048576"},
      {12, -7, "byte 12: vocabulary -7, expected 1 to 1048576"},
      {16, 65537, "byte 16: number of layers 65537, expected 1 to 65536"},
      {20, 5, "byte 24: number of channels 36, expected a multiple of the 5 heads"},
      {24, 2147483647, "byte 24: number of channels 2147483647, expected 1 to 1048576"},
      {28, 96, "byte 28: padded vocabulary 96, expected at least the vocabulary 97"},
      // legal, but not the size of this file: (19 + 1) C more or (128 + 1) C more
      {8, 20, "byte 214720: the file ends here, but a model of 3 layers, 36 channels, context 20"},
      {8, 18, "byte 214576: 144 bytes too many, a model of 3 layers"},
      {16, 65536, "byte 214720: the file ends here, but a model of 65536 layers"},
      {4, 5,
       "byte 107872: 106848 bytes too many, a model of 3 layers, 36 channels, context 19, padded vocabulary 128 in "
       "bf16"},
  }));
  TemporaryFolder const folder;
  Bytes bytes = read_bytes(find_fixture("gpt_odd").model);
  set_number(bytes, damage.offset, damage.value);
  write_bytes(folder / "model.bin", bytes);
  CHECK_THAT(model_error(folder / "model.bin"), ContainsSubstring((folder / "model.bin").string()));
  CHECK_THAT(model_error(folder / "model.bin"), ContainsSubstring(damage.message));
}

TEST_CASE("a damaged llm.c model in bf16 is refused with file, byte offset and what would be right", "[llmc]") {
  struct Damage {
    std::size_t offset;
    std::int32_t value;
    char const* message;
  };
  auto const damage = GENERATE(values<Damage>({
      {0, 20240327, "byte 0: magic number 20240327 (an llm.c debug state), expected 20240326"},
      {4, 6, "byte 4: version 6, expected 3 (fp32) or 5 (bf16)"},
      {20, 5, "byte 24: number of channels 36, expected a multiple of the 5 heads"},
      {28, 96, "byte 28: padded vocabulary 96, expected at least the vocabulary 97"},
      // legal, but not the size of this file: 2 C bytes more or less, or 4 bytes per element
      {8, 20, "byte 107872: the file ends here, but a model of 3 layers, 36 channels, context 20"},
      {8, 18, "byte 107800: 72 bytes too many, a model of 3 layers"},
      {4, 3,
       "byte 107872: the file ends here, but a model of 3 layers, 36 channels, context 19, padded vocabulary 128 in "
       "fp32 takes 214720 bytes"},
  }));
  TemporaryFolder const folder;
  std::filesystem::path const original = find_fixture("gpt_odd").model, path = folder / "model.bin";
  write_slices(path, LlmcModelReader(original).shape(), read_slices(original), Storage::bf16);
  Bytes const whole = read_bytes(path);
  CHECK(model_error(path) == "accepted");
  Bytes bytes = whole;
  set_number(bytes, damage.offset, damage.value);
  write_bytes(path, bytes);
  CHECK_THAT(model_error(path), ContainsSubstring(path.string()));
  CHECK_THAT(model_error(path), ContainsSubstring(damage.message));
  write_bytes(path, {whole.begin(), whole.end() - 1});
  CHECK_THAT(model_error(path), ContainsSubstring("byte 107871: the file ends here"));
  bytes = whole;
  bytes.push_back('\0');
  write_bytes(path, bytes);
  CHECK_THAT(model_error(path), ContainsSubstring("byte 107872: 1 bytes too many"));
}

TEST_CASE("a model in bf16 holds the rounded parameters, and is read and written with the same bytes", "[llmc]") {
  auto const name = GENERATE(from_range(fixture_names));
  TemporaryFolder const folder;
  std::filesystem::path const original = find_fixture(name).model;
  LlmcShape const shape = LlmcModelReader(original).shape();
  std::vector<std::vector<float>> expected = read_slices(original);
  write_slices(folder / "model.bin", shape, expected, Storage::bf16);
  CHECK(LlmcModelReader(original).storage() == Storage::fp32);
  CHECK(LlmcModelReader(folder / "model.bin").storage() == Storage::bf16);
  CHECK(LlmcModelReader(folder / "model.bin").shape() == shape);
  for (std::vector<float>& slice : expected)
    for (float& value : slice) value = to_float(from_float<bf16>(value));
  std::vector<std::vector<float>> const read = read_slices(folder / "model.bin");
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(mismatches(std::span<float const>(read[i]), std::span<float const>(expected[i]), 0.0) == "");
  write_slices(folder / "again.bin", shape, expected, Storage::bf16);
  CHECK((read_bytes(folder / "again.bin") == read_bytes(folder / "model.bin")));
}

TEST_CASE("every bf16 but signalling NaNs is read and written with the same bits", "[llmc]") {
  TemporaryFolder const folder;
  LlmcShape const shape{.context = 65536, .vocab = 1, .layers = 1, .heads = 1, .channels = 1, .padded_vocab = 1};
  std::vector<std::vector<float>> slices;
  for (LlmcTensor const& tensor : llmc_tensors(shape)) slices.emplace_back(tensor.extent());
  for (std::uint32_t bits = 0; bits < 65536; ++bits)
    slices[1][bits] = to_float(bf16{static_cast<std::uint16_t>(bits)}); // wpe
  write_slices(folder / "model.bin", shape, slices, Storage::bf16);
  Bytes const bytes = read_bytes(folder / "model.bin");
  std::size_t const first = 1024 + 2; // behind the header and wte
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    std::uint16_t found = 0;
    std::memcpy(&found, bytes.data() + first + 2 * bits, sizeof(found));
    bool const signalling = (bits & 0x7fc0u) == 0x7f80u && (bits & 0x3fu) != 0;
    REQUIRE(found == (signalling ? bits | 0x40u : bits));
  }
  std::vector<std::vector<float>> const read = read_slices(folder / "model.bin");
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    std::uint16_t found = 0;
    std::memcpy(&found, bytes.data() + first + 2 * bits, sizeof(found));
    REQUIRE(std::bit_cast<std::uint32_t>(read[1][bits]) == std::uint32_t{found} << 16);
  }
}

TEST_CASE("there are no llm.c models in fp16", "[llmc]") {
  TemporaryFolder const folder;
  LlmcShape const shape{.context = 1, .vocab = 1, .layers = 1, .heads = 1, .channels = 1, .padded_vocab = 1};
  CHECK_THROWS_AS(LlmcModelWriter(folder / "model.bin", shape, Storage::fp16), Error);
  CHECK(folder.files() == 0);
}

TEST_CASE("an llm.c model of the wrong length or that is no file is refused", "[llmc]") {
  TemporaryFolder const folder;
  std::filesystem::path const path = folder / "model.bin";
  CHECK_THAT(model_error(path), ContainsSubstring("model.bin: cannot be read: No such file"));
  CHECK_THAT(model_error(path.parent_path()), ContainsSubstring("is not a file"));
  Bytes bytes = read_bytes(find_fixture("gpt_odd").model);
  bytes.push_back('\0');
  write_bytes(path, bytes);
  CHECK_THAT(model_error(path), ContainsSubstring("byte 214720: 1 bytes too many"));
  bytes.resize(bytes.size() - 2);
  write_bytes(path, bytes);
  CHECK_THAT(model_error(path), ContainsSubstring("byte 214719: the file ends here"));
  CHECK_THAT(model_error(path), ContainsSubstring("takes 214720 bytes"));
  bytes.resize(1023);
  write_bytes(path, bytes);
  CHECK_THAT(model_error(path), ContainsSubstring("byte 1023: the file ends here, inside the header of 1024 bytes"));
  write_bytes(path, {});
  CHECK_THAT(model_error(path), ContainsSubstring("byte 0: the file ends here, inside the header"));
}

TEST_CASE("a damaged llm.c debug state is refused with byte offset and what would be right", "[llmc]") {
  struct Damage {
    std::size_t offset;
    std::int32_t value;
    char const* message;
  };
  auto const damage = GENERATE(values<Damage>({
      {0, 20240326, "byte 0: magic number 20240326 (an llm.c model), expected 20240327 (an llm.c debug state)"},
      {4, 1, "byte 4: version 1, expected 2 (fp32)"},
      {8, 0, "byte 8: batch 0, expected 1 to 1048576"},
      {8, 6, "byte 252344: the file ends here, but the state of 6 x 19 tokens"},
      {12, 20, "byte 12: sequence length 20, expected at most the model's 19"},
      {1024, 97, "byte 1024: token 97, expected 0 to 96, as the vocabulary is 97"},
      {1024 + 4 * (2 * 95 - 1), -1, "byte 1780: token -1, expected 0 to 96"},
  }));
  TemporaryFolder const folder;
  Fixture const fixture = find_fixture("gpt_odd");
  LlmcShape const shape = LlmcModelReader(fixture.model).shape();
  CHECK(state_error(fixture.state, shape) == "accepted");
  Bytes bytes = read_bytes(fixture.state);
  set_number(bytes, damage.offset, damage.value);
  write_bytes(folder / "state.bin", bytes);
  CHECK_THAT(state_error(folder / "state.bin", shape), ContainsSubstring(damage.message));
}

TEST_CASE("a debug state of another model is refused", "[llmc]") {
  LlmcShape const shape = LlmcModelReader(find_fixture("gpt_even").model).shape();
  CHECK_THAT(state_error(find_fixture("gpt_odd").state, shape), ContainsSubstring("byte 252344: the file ends here"));
}

TEST_CASE("slices in parts and in any order make the same file, and no element is written twice or left out",
          "[llmc]") {
  TemporaryFolder const folder;
  std::filesystem::path const original = find_fixture("gpt_odd").model;
  LlmcShape const shape = LlmcModelReader(original).shape();
  std::vector<std::vector<float>> const slices = read_slices(original);
  auto const tensors = llmc_tensors(shape);
  LlmcModelWriter writer(folder / "model.bin", shape);
  auto slice = slices.rbegin();
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor)
    for (Index layer = tensor->layers - 1; layer >= 0; --layer, ++slice) {
      std::span<float const> const all = *slice;
      writer.write(*tensor, layer, 3, all.subspan(3, 4));
      CHECK_THROWS_AS(writer.write(*tensor, layer, 0, all.first(4)), Error);
      CHECK_THROWS_AS(writer.write(*tensor, layer, 6, all.subspan(6)), Error);
      CHECK_THROWS_AS(writer.write(*tensor, layer, 7, all), Error); // more than there are
      writer.write(*tensor, layer, 7, all.subspan(7));
      CHECK_THROWS_AS(writer.finish(), Error);
      writer.write(*tensor, layer, 0, all.first(3));
    }
  writer.finish();
  CHECK((read_bytes(folder / "model.bin") == read_bytes(original)));
}

TEST_CASE("a model file that was not finished leaves nothing and spares the older file", "[llmc]") {
  TemporaryFolder const folder;
  Bytes const older{'o', 'l', 'd'};
  write_bytes(folder / "model.bin", older);
  {
    LlmcShape const shape{.context = 1, .vocab = 1, .layers = 1, .heads = 1, .channels = 1, .padded_vocab = 1};
    LlmcModelWriter writer(folder / "model.bin", shape);
    writer.write(llmc_tensors(shape)[1], 0, 0, std::vector<float>(1));
    CHECK_THROWS_AS(writer.finish(), Error);
  }
  CHECK(read_bytes(folder / "model.bin") == older);
  CHECK(folder.files() == 1);
}

TEST_CASE("a model file that cannot be written is an input error and leaves nothing", "[llmc]") {
  TemporaryFolder const folder;
  LlmcShape const shape{.context = 1, .vocab = 1, .layers = 1, .heads = 1, .channels = 1, .padded_vocab = 1};
  write_bytes(folder / "file", {});
  CHECK_THROWS_AS(LlmcModelWriter(folder / "file/model.bin", shape), InputError); // the folder is a file
  CHECK_THROWS_AS(LlmcModelWriter(folder / "absent/model.bin", shape), InputError);
  CHECK_THROWS_AS(LlmcModelWriter(folder / "", shape), InputError); // the file is a folder
  CHECK(folder.files() == 1);
}

TEST_CASE("a full disk while a model is written is an error and leaves nothing", "[llmc]") {
  TemporaryFolder const folder;
  std::filesystem::path const original = find_fixture("gpt_odd").model;
  FileSizeLimit const limit(std::filesystem::file_size(original) - 1);
  CHECK_THROWS_AS(write_slices(folder / "model.bin", LlmcModelReader(original).shape(), read_slices(original)), Error);
  CHECK(folder.files() == 0);
}
