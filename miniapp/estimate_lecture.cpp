// trainstone estimate --lecture: what is taught beside what is exact.

#include "commands.hpp"

#include "comm/prediction/taught_collectives.hpp"
#include "machine_source.hpp"
#include "report/lecture_collectives.hpp"

#include <fmt/format.h>

namespace trainstone {

int estimate_lecture(EstimateOptions const& options) {
  TRAINSTONE_REQUIRE_INPUT(options.lecture == "collectives",
                           "--lecture: there is no lecture \"{}\"; there is: collectives", options.lecture);
  TRAINSTONE_REQUIRE_INPUT(options.common.deck.path.empty() && options.common.deck.overrides.empty() &&
                               !options.device_memory,
                           "--lecture takes --ranks, --size and --machine; a DECK, --set and --device-mem belong to "
                           "an estimate without it");
  constexpr std::int64_t usual_ranks = 8;
  constexpr std::uint64_t usual_bytes = 1 << 20;
  std::int64_t const asked = options.ranks.value_or(usual_ranks);
  TRAINSTONE_REQUIRE_INPUT(asked >= 2 && asked <= most_taught_ranks,
                           "--ranks {}: a lecture compares 2 to {} ranks; commbench --simulate prices more", asked,
                           most_taught_ranks);
  auto const ranks = static_cast<Rank>(asked);
  std::uint64_t const step = taught_size_step(ranks);
  std::uint64_t const bytes = options.size.value_or((usual_bytes + step - 1) / step * step);
  MachineSource const machine = read_machine_source(options.machine_file, Topology::one_node(ranks), false);
  fmt::print("{}",
             lecture_collectives_text(compare_taught_collectives(ranks, bytes, machine.model), machine.description));
  return 0;
}

} // namespace trainstone
