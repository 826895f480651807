#pragma once

// What the computing parts of a step take on one rank. A plain value: measured on a machine, or made up in a test.

#include "core/error.hpp"
#include "model/part.hpp"
#include "model/part_kernels.hpp"

#include <map>
#include <string>
#include <vector>

namespace trainstone {

/// A pass of a part.
struct PassOfPart {
  PartKind part; ///< of the loss: head
  Pass pass;
  Recompute how = Recompute::none; ///< of recompute

  auto operator<=>(PassOfPart const&) const = default;
};

/// "mlp backward", "head loss", "attention recompute full"
inline std::string to_string(PassOfPart const& one) {
  std::string const part(to_string(one.part));
  switch (one.pass) {
  case Pass::forward: return part + " forward";
  case Pass::loss: return part + " loss";
  case Pass::recompute: return part + " recompute " + std::string(to_string(one.how));
  case Pass::backward: return part + " backward";
  }
  return part;
}

/// In s.
struct PartTimes {
  struct OfPart {
    double forward = 0;
    double backward = 0;        ///< overwrites gradients
    double backward_adding = 0; ///< adds to gradients
    double recompute_selective = 0, recompute_full = 0;

    double recompute(Recompute how) const { return how == Recompute::full ? recompute_full : recompute_selective; }
    bool operator==(OfPart const&) const = default;
  };

  /// \throws Error if there are none
  OfPart const& of(PartKind kind) const {
    auto const found = parts.find(kind);
    TRAINSTONE_REQUIRE(found != parts.end(), "no times of part \"{}\"", to_string(kind));
    return found->second;
  }

  std::map<PartKind, OfPart> parts; ///< of one micro-batch
  double load = 0;                  ///< of one micro-batch
  double loss = 0;                  ///< of one micro-batch
  double agree = 0;                 ///< on losses, without messages
  double norm_of_element = 0;       ///< of the summed gradient
  double update_of_element = 0;
  double copy_of_element = 0; ///< of a gradient or a parameter
  double add_of_element = 0;  ///< of a gradient
  /// Of passes that ranks of a tensor group run piece by piece: what each piece is of the pass, in sum 1. Pieces of
  /// others are taken for equal.
  std::map<PassOfPart, std::vector<double>> piece_shares = {};

  bool operator==(PartTimes const&) const = default;
};

} // namespace trainstone
