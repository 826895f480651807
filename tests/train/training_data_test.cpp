#include "train/data/training_data.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <unistd.h>

using namespace trainstone;

namespace {

/// A text file of `size` bytes 0, 1, 2, ... that is removed at the end.
struct TextFile {
  explicit TextFile(std::size_t size)
      : path(std::filesystem::temp_directory_path() / ("training_data_" + std::to_string(getpid()))) {
    std::string text(size, ' ');
    std::iota(text.begin(), text.end(), '\0');
    std::ofstream(path, std::ios::binary) << text;
  }
  ~TextFile() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

RunConfig make_config(TextFile const& file) {
  RunConfig config;
  config.model = {1, 1, 8, 5, 256};
  config.data.files = {file.path.string()};
  config.data.sequence = 5;
  config.batch = {2, 1, 2};
  config.length.epochs = 2;
  return config;
}

} // namespace

TEST_CASE("epochs become the steps that show every sample that often", "[train][data]") {
  TextFile const file(101); // 20 samples of 5 tokens
  TrainingData const data(make_config(file), ScanTokens::yes);
  CHECK(data.training_samples() == 20);
  CHECK(data.steps() == 20);
  CHECK(data.batches().validation_batches == 0);
}

TEST_CASE("the sources hand out inputs and the same tokens shifted by one", "[train][data]") {
  TextFile const file(101);
  RunConfig config = make_config(file);
  config.data.validation_fraction = 0.2;
  TrainingData const data(config, ScanTokens::no);
  CHECK(data.training_samples() == 16);
  CHECK(data.batches().validation_batches == 2);
  std::vector<std::int32_t> inputs(10), targets(10);
  data.batches().training(3, 0, inputs, targets);
  for (std::size_t i = 0; i < 10; ++i) CHECK(targets[i] == inputs[i] + 1);
  data.batches().validation(0, 0, inputs, targets);
  CHECK(inputs[0] == 16 * 5); // the tail is held out, in order
}

TEST_CASE("a wrong checksum is found by the rank that scans", "[train][data]") {
  TextFile const file(101);
  RunConfig config = make_config(file);
  config.data.xxhash = "0123456789abcdef";
  CHECK_THROWS_AS(TrainingData(config, ScanTokens::yes), InputError);
  CHECK_NOTHROW(TrainingData(config, ScanTokens::no));
}

TEST_CASE("what is read from files is counted, and scanned files have a hash", "[train][data]") {
  TextFile const file(101);
  RunConfig const config = make_config(file);
  TrainingData const unread(config, ScanTokens::no), scanned(config, ScanTokens::yes);
  CHECK(unread.reads().bytes == 0);
  CHECK(unread.xxhash() == 0);
  CHECK(scanned.reads().bytes == 101);
  CHECK(scanned.xxhash() != 0);
  std::vector<std::int32_t> inputs(10), targets(10);
  unread.batches().training(0, 0, inputs, targets);
  CHECK(unread.reads().bytes == 2 * (5 + 1)); // two samples of five tokens, and the one after each
  CHECK(unread.reads().seconds > 0);
}

TEST_CASE("synthetic data needs no files", "[train][data]") {
  TextFile const file(1);
  RunConfig config = make_config(file);
  config.data.source = DataSource::synthetic;
  config.data.files.clear();
  config.length = {7, 0, 0};
  TrainingData const data(config, ScanTokens::yes);
  CHECK(data.reads().bytes == 0);
  CHECK(data.xxhash() == 0);
  CHECK(data.steps() == 7);
  CHECK(data.training_samples() == (synthetic_tokens - 1) / 5);
}
