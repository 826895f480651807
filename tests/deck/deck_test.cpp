#include "deck/deck.hpp"

#include "support/deck_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <fstream>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

TEST_CASE("a deck fills the configuration", "[deck]") {
  Deck const deck = read_text(small_deck + "accumulation = 2\n"
                                           "[optimizer]\nlr = 1e-3\nbetas = [0.8, 0.99]\ndecay = \"all\"\nclip = 0\n"
                                           "schedule = \"constant\"\n"
                                           "[kernels]\ngemm = \"onednn\"\n"
                                           "[faults]\nnan = { step = 3, unit = \"mlp 1\" }\n");
  RunConfig const& config = deck.config;
  CHECK(config.model == GptConfig{2, 4, 64, 32, 256});
  CHECK(config.data.source == DataSource::text);
  CHECK(config.data.files == std::vector<std::string>{"data/corpus.txt"});
  CHECK(config.data.sequence == 16);
  CHECK(config.length.steps == 10);
  CHECK(config.batch == BatchConfig{2, 2, 8});
  CHECK(config.optimizer.learning_rate == 1e-3);
  CHECK(config.optimizer.betas == std::array{0.8, 0.99});
  CHECK(config.optimizer.decay == DecayScope::all);
  CHECK(config.optimizer.clip == 0);
  CHECK(config.schedule.type == ScheduleType::constant);
  CHECK(config.kernels.gemm == "onednn");
  CHECK(config.faults.nan_step == 3);
  CHECK(config.faults.nan_part == "mlp 1");
}

TEST_CASE("dotted keys, inline tables and sections mean the same", "[deck]") {
  std::string const rest = small_deck.substr(0, small_deck.find("[batch]"));
  std::string const expected = deck_hash(read_small());
  CHECK(deck_hash(read_text("batch.micro = 2\nbatch.global = 8\n" + rest)) == expected);
  CHECK(deck_hash(read_text("batch = { micro = 2, global = 8 }\n" + rest)) == expected);
}

TEST_CASE("a preset gives the shape and single numbers replace it", "[deck]") {
  Deck const deck = read_text("[model]\npreset = \"gpt2\"\nlayers = 3\n[data]\nsource = \"synthetic\"\nsteps = 5\n");
  CHECK(deck.config.model == GptConfig{3, 12, 768, 1024, 50257});
  CHECK(to_string(deck.origins.at("model.layers")) == "deck:3");
  CHECK(to_string(deck.origins.at("model.heads")) == "preset gpt2");
}

TEST_CASE("the sequence is the model's context unless it is given", "[deck]") {
  Deck const deck = read_small({"data.sequence=0"});
  CHECK(deck.config.data.sequence == 32);
  CHECK(to_string(deck.origins.at("data.sequence")) == "derived");
}

TEST_CASE("precedence is default, deck, environment, command line", "[deck]") {
  auto const micro = [](Deck const& deck) {
    return std::pair(deck.config.batch.micro, to_string(deck.origins.at("batch.micro")));
  };
  CHECK(micro(read_small()) == std::pair<std::int64_t, std::string>(2, "deck:12"));
  CHECK(micro(read_small({}, "batch.micro=4")) == std::pair<std::int64_t, std::string>(4, "environment"));
  CHECK(micro(read_small({"batch.micro=8"}, "batch.micro=4")) ==
        std::pair<std::int64_t, std::string>(8, "command line"));
  CHECK(micro(read_small({"batch.micro=8", "batch.micro=1"})) ==
        std::pair<std::int64_t, std::string>(1, "command line"));
  CHECK(to_string(read_small().origins.at("optimizer.lr")) == "default");
}

TEST_CASE("overrides take TOML values and bare words", "[deck]") {
  Deck const deck = read_small({"optimizer.schedule=constant", "optimizer.betas=[0.5, 0.75]", " optimizer.lr = 2e-4 ",
                                "data.files=[\"a;b.txt\", 'c.txt']", "model.save=\"x y.bin\"", "model.load=1.bin"});
  CHECK(deck.config.schedule.type == ScheduleType::constant);
  CHECK(deck.config.optimizer.betas == std::array{0.5, 0.75});
  CHECK(deck.config.optimizer.learning_rate == 2e-4);
  CHECK(deck.config.data.files == std::vector<std::string>{"a;b.txt", "c.txt"});
  CHECK(deck.config.model_setup.save == "x y.bin");
  CHECK(deck.config.model_setup.load == "1.bin");
}

TEST_CASE("a hash of digits alone is a string on the command line too", "[deck]") {
  CHECK(read_small({"data.xxhash=1234567890123456"}).config.data.xxhash == "1234567890123456");
}

TEST_CASE("the environment separates overrides by semicolons outside of quotes", "[deck]") {
  Deck const deck = read_small({}, "batch.micro=4; data.files=[\"a;b.txt\"];;optimizer.schedule = constant;");
  CHECK(deck.config.batch.micro == 4);
  CHECK(deck.config.data.files == std::vector<std::string>{"a;b.txt"});
  CHECK(deck.config.schedule.type == ScheduleType::constant);
}

TEST_CASE("an unknown key is refused with its line and the key that is meant", "[deck]") {
  CHECK(error_of(small_deck + "mirco = 3\n") ==
        "inputs/small.toml:14: unknown key \"batch.mirco\", did you mean \"batch.micro\"?");
  CHECK(error_of(small_deck + "[optimiser]\nlr = 1\n") ==
        "inputs/small.toml:14: unknown section \"optimiser\", did you mean \"optimizer\"?");
  CHECK(error_of("steps = 3\n" + small_deck) ==
        "inputs/small.toml:1: unknown key \"steps\", did you mean \"data.steps\"?");
  CHECK(error_of(small_deck + "[faults.nan]\nstpe = 3\n") ==
        "inputs/small.toml:15: unknown key \"faults.nan.stpe\", did you mean \"faults.nan.step\"?");
  CHECK(error_of("xylophone_quartet = 1\n" + small_deck) ==
        "inputs/small.toml:1: unknown key \"xylophone_quartet\"; --help-deck lists all keys");
}

TEST_CASE("keys of later versions are unknown", "[deck]") {
  CHECK_THAT(error_of("include = [\"x.toml\"]\n" + small_deck),
             StartsWith("inputs/small.toml:1: unknown key \"include\""));
  CHECK_THAT(error_of(small_deck + "[offload]\nfolder = \"x\"\n"), StartsWith("inputs/small.toml:14: unknown section"));
  CHECK_THAT(error_of_override("parallel.sequences=true"), ContainsSubstring("unknown key \"parallel.sequences\""));
}

TEST_CASE("a value of the wrong type is refused with the right one", "[deck]") {
  CHECK(error_with_line(12, "micro = \"2\"") == "inputs/small.toml:12: batch.micro is a string, must be an integer, "
                                                "for example batch.micro = 0");
  CHECK_THAT(error_with_line(12, "micro = 2.0"),
             StartsWith("inputs/small.toml:12: batch.micro is a number with a fraction"));
  CHECK_THAT(error_with_line(12, "micro = true"),
             ContainsSubstring("batch.micro is true or false, must be an integer"));
  CHECK_THAT(error_with_line(12, "micro = 2024-03-26"), ContainsSubstring("batch.micro is a date or time"));
  CHECK_THAT(error_with_line(12, "micro = [2]"), ContainsSubstring("batch.micro is a list, must be an integer"));
  CHECK_THAT(error_with_line(12, "micro = { a = 1 }"),
             ContainsSubstring("batch.micro is a section, must be an integer"));
  CHECK_THAT(error_with_line(8, "files = \"a.txt\""),
             ContainsSubstring("data.files is a string, must be a list of strings, for example data.files = []"));
  CHECK_THAT(error_with_line(8, "files = [\"a.txt\", 3]"), ContainsSubstring("must be a list of strings"));
  CHECK(error_of("model = 3\n") == "inputs/small.toml:1: model is an integer, must be a section: [model]");
}

TEST_CASE("numbers may be written as integers", "[deck]") {
  CHECK(read_small({"optimizer.lr=1"}).config.optimizer.learning_rate == 1);
}

TEST_CASE("a value out of range is refused with the range", "[deck]") {
  CHECK(error_with_line(12, "micro = -1") ==
        "inputs/small.toml:12: batch.micro = -1 is out of range, must be 0 to 1000000");
  CHECK(error_of_override("optimizer.lr=0") ==
        "--set optimizer.lr=0: optimizer.lr = 0 is out of range, must be above 0");
  CHECK(error_of_override("data.validation_fraction=0.6") ==
        "--set data.validation_fraction=0.6: data.validation_fraction = 0.6 is out of range, must be 0 to 0.5");
  CHECK(error_of_override("optimizer.betas=[0.9, 1.0]") ==
        "--set optimizer.betas=[0.9, 1.0]: optimizer.betas = 1 is out of range, must be 0 to below 1");
  CHECK(error_of_override("optimizer.betas=[0.9]") ==
        "--set optimizer.betas=[0.9]: optimizer.betas has 1 numbers, must be a list of 2 numbers");
  CHECK_THAT(error_of_override("optimizer.lr=nan"), ContainsSubstring("out of range"));
  CHECK_THAT(error_of_override("optimizer.lr=inf"), ContainsSubstring("out of range"));
}

TEST_CASE("an unknown choice is refused with the choices", "[deck]") {
  CHECK(error_of_override("optimizer.schedule=linear") ==
        "--set optimizer.schedule=linear: optimizer.schedule = \"linear\" is unknown, must be one of constant, cosine");
  CHECK(error_of_override("precision.recipe=mixed17") ==
        "--set precision.recipe=mixed17: precision.recipe = \"mixed17\" is unknown, must be one of fp32, mixed16, "
        "mixed18, mixed20");
  CHECK_THAT(error_of_override("model.preset=gpt5"), ContainsSubstring("must be one of gpt2, gpt2-medium"));
  CHECK_THAT(error_of_override("kernels.gemm=magma"),
             ContainsSubstring("one of auto, kokkos-kernels, onednn, kokkos, cublaslt, cublaslt-tf32, blas, measured"));
  CHECK(error_of_override("kernels.attention=cutlass") ==
        "--set kernels.attention=cutlass: kernels.attention = \"cutlass\" is unknown, must be one of auto, flash, "
        "tensor_cores, cudnn, wgmma");
}

TEST_CASE("a syntax error is reported with its line", "[deck]") {
  CHECK_THAT(error_with_line(12, "micro 2"), StartsWith("inputs/small.toml:12: "));
  CHECK_THAT(error_of(small_deck + "[batch\n"), StartsWith("inputs/small.toml:14: "));
  CHECK_THAT(error_of(small_deck + "micro = 3\n"), StartsWith("inputs/small.toml:14: ")); // given twice
}

TEST_CASE("malformed overrides are refused and shown", "[deck]") {
  CHECK(error_of_override("batch.micro") == "--set batch.micro: must have the form section.key=value");
  CHECK(error_of_override("batch.mirco=2") ==
        "--set batch.mirco=2: unknown key \"batch.mirco\", did you mean \"batch.micro\"?");
  CHECK(error_of_override("batch.micro=two") == "--set batch.micro=two: the value is not TOML: batch.micro must be an "
                                                "integer, for example batch.micro = 0");
  CHECK_THAT(error_of_override("batch.micro=2\nglobal = 4"), ContainsSubstring("must be one key and one value"));
  CHECK_THAT(error_of_override("batch.micro="), ContainsSubstring("must be an integer"));
  CHECK_THAT(input_error_of([] { read_small({}, "batch.micro=4;batch.mirco=2"); }),
             StartsWith("TRAINSTONE_SET batch.mirco=2: unknown key"));
}

TEST_CASE("a deck that is missing or no file is refused by name", "[deck]") {
  CHECK(input_error_of([] { read_deck({"no/such.toml", {}, {}}); }) ==
        "no/such.toml: cannot read the deck: No such file or directory");
  std::string const folder = std::filesystem::temp_directory_path().string();
  CHECK(input_error_of([&] { read_deck({folder, {}, {}}); }) == folder + ": is a folder, must be a deck (TOML file)");
}

TEST_CASE("without a deck, overrides alone configure a run", "[deck]") {
  Deck const deck = read_deck({"", {"model.preset=gpt2", "data.source=synthetic", "data.steps=3"}, ""});
  CHECK(deck.config.model.layers == 12);
  CHECK_THAT(deck_label(deck), StartsWith("defaults#"));
}

TEST_CASE("files are relative to the deck's folder, what is written to the working directory", "[deck]") {
  Deck const deck =
      read_small({"data.validation_files=[\"../v.txt\", \"/abs/w.txt\"]", "model.load=m.bin", "model.save=s.bin"});
  RunConfig const config = resolve(deck, 2);
  CHECK(config.data.files == std::vector<std::string>{"inputs/data/corpus.txt"});
  CHECK(config.data.validation_files == std::vector<std::string>{"v.txt", "/abs/w.txt"});
  CHECK(config.model_setup.load == "inputs/m.bin");
  CHECK(config.model_setup.save == "s.bin");
}

TEST_CASE("the batch is resolved for the number of ranks", "[deck]") {
  CHECK(resolve(read_small(), 1).batch == BatchConfig{2, 4, 8});
  CHECK(resolve(read_small(), 4).batch == BatchConfig{2, 1, 8});
  CHECK(input_error_of([] { resolve(read_small(), 3); }) ==
        "inputs/small.toml:13: batch.global = 8 is no multiple of "
        "6 (batch.micro x 3 data ranks); nearest legal values: 6 or 12");
}

TEST_CASE("another number of ranks than the expected one is refused", "[deck]") {
  Deck const deck = read_small({"comm.expected_ranks=2"});
  CHECK_NOTHROW(resolve(deck, 2));
  CHECK(input_error_of([&] { resolve(deck, 1); }) ==
        "--set comm.expected_ranks=2: comm.expected_ranks = 2, but the run has 1 rank; start it with mpiexec -n 2 "
        "(estimate: --ranks 2), or --set comm.expected_ranks=1");
}

TEST_CASE("a section is set key by key", "[deck]") {
  CHECK(error_of_override("faults.order={step=2}") ==
        "--set faults.order={step=2}: faults.order is a section: set one key of it at a time");
}

TEST_CASE("the measured window leaves out the warm-up", "[deck]") {
  MeasuredWindow const all = measured_window(read_small(), 10);
  CHECK((all.first == 2 && all.last == 10));
  MeasuredWindow const some = measured_window(read_small({"bench.warmup_steps=3", "bench.window=4"}), 10);
  CHECK((some.first == 4 && some.last == 7));
  CHECK(input_error_of([] { measured_window(read_small({"bench.warmup_steps=10"}), 10); }) ==
        "--set bench.warmup_steps=10: bench.warmup_steps = 10 leaves none of 10 steps to measure; nearest legal value: "
        "9");
  CHECK(input_error_of([] { measured_window(read_small({"bench.window=10"}), 10); }) ==
        "--set bench.window=10: bench.window = 10 steps after 1 warm-up steps exceed the training's 10 steps; nearest "
        "legal value: 9");
}
