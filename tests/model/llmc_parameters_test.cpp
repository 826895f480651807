#include "model/llmc/llmc_parameters.hpp"

#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "core/memory.hpp"
#include "support/file_text.hpp"
#include "support/fixtures.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <unistd.h>

using namespace trainstone;

namespace {

struct FlatParameters {
  explicit FlatParameters(ParameterTable const& table)
      : memory(ledger, MemoryCategory::parameters, "test",
               memory_footprint(static_cast<std::uint64_t>(table.size()) * 4)),
        arena(memory.bytes()),
        view(arena.vector<float>("parameters", table.size())) {}
  MemoryLedger ledger;
  Allocation memory;
  Arena arena;
  Vector<float> view;
};

} // namespace

TEST_CASE("a model that is loaded and saved has the same bytes, whatever the padding of our groups", "[model][llmc]") {
  std::string const name = GENERATE("gpt_even", "gpt_odd"); // both pad the vocabulary to 128, as we do
  std::int64_t const ranks = GENERATE(1, 3);
  std::size_t const part = GENERATE(std::size_t{997}, std::size_t{1} << 20);
  ExecutionSpace const exec;
  test::Fixture const fixture = test::find_fixture(name);
  GptConfig const config = config_of(LlmcModelReader(fixture.model).shape());
  ParameterTable const table(config, ranks);
  FlatParameters const parameters(table);
  for (Index group = 0; group < std::ssize(table.groups()); ++group) {
    ParameterGroup const& entry = table.groups()[static_cast<std::size_t>(group)];
    load_parameters(exec, fixture.model, config, table, group, {0, entry.padded},
                    Vector<float>(parameters.view.data() + entry.offset, static_cast<std::size_t>(entry.padded)));
  }
  std::filesystem::path const copy =
      std::filesystem::temp_directory_path() / fmt::format("llmc_{}_{}.bin", name, getpid());
  std::vector<float> const all = copy_to_host(exec, parameters.view, "test");
  ParameterWriter writer(copy, config, table);
  for (Index group = std::ssize(table.groups()) - 1; group >= 0; --group) {
    ParameterGroup const& entry = table.groups()[static_cast<std::size_t>(group)];
    std::span<float const> const values =
        std::span(all).subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.padded));
    for (std::size_t first = 0; first < values.size(); first += part)
      writer.write(group, static_cast<Index>(first), values.subspan(first, std::min(part, values.size() - first)));
  }
  writer.finish();
  CHECK(test::file_text(copy) == test::file_text(fixture.model));
  std::filesystem::remove(copy);
}

TEST_CASE("a file of another shape than the deck's is refused with both shapes", "[model][llmc]") {
  ExecutionSpace const exec;
  test::Fixture const fixture = test::find_fixture("gpt_odd");
  GptConfig config = config_of(LlmcModelReader(fixture.model).shape());
  config.layers += 1;
  ParameterTable const table(config, 1);
  FlatParameters const parameters(table);
  try {
    load_parameters(exec, fixture.model, config, table, 0, {0, table.groups()[0].padded}, parameters.view);
    FAIL("accepted");
  } catch (InputError const& error) {
    CHECK(std::string(error.what()).find("3 layers") != std::string::npos);
    CHECK(std::string(error.what()).find("4 layers") != std::string::npos);
  }
}
