#include "parallel/plan/gradient_layout.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

namespace {

void append(GradientLayout& all, StateLayout const& layout, Index group, bool looked_up, GradientsKept kept) {
  all.gradients.push_back({group, looked_up, all.elements, all.share_elements});
  Index const share = layout.share(group).size();
  all.elements += kept == GradientsKept::shares ? share : layout.groups[static_cast<std::size_t>(group)].padded;
  all.share_elements += share;
}

} // namespace

Gradient const& GradientLayout::of_group(Index group) const {
  auto const found =
      std::ranges::find_if(gradients, [=](Gradient const& one) { return one.group == group && !one.looked_up; });
  TRAINSTONE_REQUIRE(found != gradients.end(), "group {} has no gradient", group);
  return *found;
}

std::optional<Gradient> GradientLayout::looked_up() const {
  auto const found = std::ranges::find_if(gradients, &Gradient::looked_up);
  return found == gradients.end() ? std::nullopt : std::optional(*found);
}

GradientLayout make_gradient_layout(StateLayout const& layout, std::optional<Index> in_two_parts, GradientsKept kept) {
  GradientLayout all;
  for (ParameterUnit const& unit : layout.units) {
    Index const first = std::ssize(all.gradients), begin = all.elements;
    for (Index group = unit.first_group; group <= unit.last_group; ++group) append(all, layout, group, false, kept);
    if (in_two_parts && unit.has(*in_two_parts)) append(all, layout, *in_two_parts, true, kept);
    all.units.push_back({first, std::ssize(all.gradients) - 1, {begin, all.elements}});
  }
  return all;
}

} // namespace trainstone
