// trainstone estimate --lecture: what is taught beside what is exact.

#include "commands.hpp"

#include "advice/published_runs.hpp"
#include "lectures/lecture_activations.hpp"
#include "lectures/lecture_capability.hpp"
#include "lectures/lecture_collectives.hpp"
#include "lectures/lecture_models.hpp"
#include "lectures/lecture_networks.hpp"
#include "lectures/lecture_optimizer.hpp"
#include "lectures/lecture_pipeline.hpp"
#include "lectures/lecture_products.hpp"
#include "lectures/lecture_servers.hpp"
#include "lectures/lecture_zero.hpp"
#include "lectures/taught_collectives.hpp"
#include "report/machine_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace trainstone {

namespace {

constexpr std::int64_t usual_ranks = 8;

std::string collectives(EstimateOptions const& options) {
  constexpr std::uint64_t usual_bytes = 1 << 20;
  std::int64_t const asked = options.ranks.value_or(usual_ranks);
  TRAINSTONE_REQUIRE_INPUT(asked >= 2 && asked <= most_taught_ranks,
                           "--ranks {}: a lecture compares 2 to {} ranks; commbench --simulate prices more", asked,
                           most_taught_ranks);
  auto const ranks = static_cast<Rank>(asked);
  std::uint64_t const step = taught_size_step(ranks);
  std::uint64_t const bytes = options.size.value_or((usual_bytes + step - 1) / step * step);
  MachineSource const machine = read_machine_source(options.machine_file, Topology::one_node(ranks));
  return lecture_collectives_text(compare_taught_collectives(ranks, bytes, machine.model), machine.description);
}

std::string zero(EstimateOptions const& options) {
  std::int64_t const ranks = options.ranks.value_or(usual_ranks);
  TRAINSTONE_REQUIRE_INPUT(options.machine_file.empty() || ranks <= most_gather_ranks,
                           "--machine: the lecture on ZeRO prices messages on up to {} ranks, and --ranks is {}",
                           most_gather_ranks, ranks);
  MachineSource const machine =
      read_machine_source(options.machine_file, Topology::one_node(2)); // messages of one node
  return lecture_zero_text(compare_taught_zero(ranks, machine.model), machine.description);
}

std::string models(EstimateOptions const& /*options*/) { return lecture_models_text(compare_taught_models()); }

std::string capability(EstimateOptions const& /*options*/) {
  return lecture_capability_text(compare_taught_capability());
}

std::string optimizer(EstimateOptions const& /*options*/) { return lecture_optimizer_text(compare_taught_optimizer()); }

std::string networks(EstimateOptions const& /*options*/) { return lecture_networks_text(compare_taught_networks()); }

std::string pipeline(EstimateOptions const& options) {
  return lecture_pipeline_text(compare_taught_pipeline(options.stages.value_or(taught_stages), options.micro_batches));
}

std::string activations(EstimateOptions const& /*options*/) {
  return lecture_activations_text(compare_taught_activations());
}

std::string servers(EstimateOptions const& /*options*/) {
  return lecture_servers_text(compare_taught_servers(usual_ranks));
}

std::string matmul(EstimateOptions const& options) {
  constexpr std::int64_t usual = 64; // a cube and a square
  return lecture_products_text(compare_taught_products(options.ranks.value_or(usual)));
}

std::string published(EstimateOptions const& /*options*/) { return published_text(); }

struct Lecture {
  std::string_view name;
  std::string (*text)(EstimateOptions const& options);
  bool takes_ranks = false;
  bool takes_machine = false;
  bool takes_size = false;
  bool takes_stages = false; ///< and --micro-batches
};
constexpr std::array lectures{
    Lecture{.name = "collectives", .text = collectives, .takes_ranks = true, .takes_machine = true, .takes_size = true},
    Lecture{.name = "zero", .text = zero, .takes_ranks = true, .takes_machine = true},
    Lecture{.name = "models", .text = models},
    Lecture{.name = "capability", .text = capability},
    Lecture{.name = "optimizer", .text = optimizer},
    Lecture{.name = "networks", .text = networks},
    Lecture{.name = "pipeline", .text = pipeline, .takes_stages = true},
    Lecture{.name = "activations", .text = activations},
    Lecture{.name = "servers", .text = servers},
    Lecture{.name = "published", .text = published},
    Lecture{.name = "matmul", .text = matmul, .takes_ranks = true},
};

} // namespace

std::string lecture_names(std::string_view separator) {
  std::array<std::string_view, lectures.size()> names;
  std::ranges::transform(lectures, names.begin(), &Lecture::name);
  return fmt::format("{}", fmt::join(names, separator));
}

int estimate_lecture(EstimateOptions const& options) {
  auto const lecture = std::ranges::find(lectures, options.lecture, &Lecture::name);
  TRAINSTONE_REQUIRE_INPUT(lecture != lectures.end(), "--lecture: there is no lecture \"{}\"; there are: {}",
                           options.lecture, lecture_names(", "));
  TRAINSTONE_REQUIRE_INPUT(options.common.deck.path.empty() && options.common.deck.overrides.empty() &&
                               !options.device_memory && options.nodes == 1 && options.json_file.empty(),
                           "--lecture takes --ranks, --size, --machine, --stages and --micro-batches; a DECK, --set, "
                           "--device-mem, --nodes and "
                           "--json belong to an estimate without it");
  TRAINSTONE_REQUIRE_INPUT(lecture->takes_ranks || !options.ranks, "--ranks: the lecture \"{}\" has none",
                           lecture->name);
  TRAINSTONE_REQUIRE_INPUT(lecture->takes_machine || options.machine_file.empty(),
                           "--machine: the lecture \"{}\" has none", lecture->name);
  TRAINSTONE_REQUIRE_INPUT(lecture->takes_size || !options.size, "--size belongs to --lecture collectives");
  TRAINSTONE_REQUIRE_INPUT(lecture->takes_stages || (!options.stages && !options.micro_batches),
                           "--stages and --micro-batches belong to --lecture pipeline");
  fmt::print("{}", lecture->text(options));
  return 0;
}

} // namespace trainstone
