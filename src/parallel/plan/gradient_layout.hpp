#pragma once

// Where the gradients of a rank lie: one of every group of parameters, side by side, unit by unit. In ordered mode the
// token table has two. Head and embed both use the table, and where they are on different ranks their parts of its
// gradient can only meet as sums over the whole step. Ordered mode gives the same bits on every mesh, so it adds up the
// two parts apart everywhere. A plain value, as one rank sees it. Does not know how gradients are added up.

#include "comm/schedule/partition.hpp"
#include "parallel/plan/state_layout.hpp"

#include <optional>
#include <vector>

namespace trainstone {

/// The gradient of a group of parameters, or embed's part of the token table's.
struct Gradient {
  Index group;
  bool looked_up;     ///< embed's part, which lies apart
  Index offset;       ///< in the flat gradient
  Index share_offset; ///< where this rank's share begins in a vector of its shares alone
};

/// Those of a unit lie side by side.
struct UnitGradients {
  Index first, last; ///< of GradientLayout::gradients
  Range memory;      ///< in the flat gradient
};

struct GradientLayout {
  std::vector<Gradient> gradients;
  std::vector<UnitGradients> units;
  Index elements = 0;       ///< of all, with padding
  Index share_elements = 0; ///< of this rank's shares

  /// The gradient of a group; of the token table, head's part if there are two.
  Gradient const& of_group(Index group) const;
  /// Embed's part of the token table's gradient, where it lies apart.
  std::optional<Gradient> looked_up() const;
};

/// What a rank keeps of every gradient: all of it, or its share alone, as servers do.
enum class GradientsKept { whole, shares };

/// \param[in] in_two_parts  the group of the token table, if embed's part of its gradient lies apart from head's
GradientLayout make_gradient_layout(StateLayout const& layout, std::optional<Index> in_two_parts,
                                    GradientsKept kept = GradientsKept::whole);

} // namespace trainstone
