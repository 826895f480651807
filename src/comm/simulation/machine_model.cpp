#include "comm/simulation/machine_model.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trainstone {

PiecewiseLinear::PiecewiseLinear(std::vector<Piece> pieces) : m_pieces(std::move(pieces)) {
  TRAINSTONE_REQUIRE(!m_pieces.empty() && m_pieces.front().from_bytes == 0,
                     "the first of {} pieces must begin at 0 bytes", m_pieces.size());
  for (std::size_t i = 0; i < m_pieces.size(); ++i) {
    Piece const& piece = m_pieces[i];
    TRAINSTONE_REQUIRE(std::isfinite(piece.from_bytes) && std::isfinite(piece.start) && std::isfinite(piece.per_byte),
                       "piece {} is not finite: from {} bytes, {} s + {} s per byte", i, piece.from_bytes, piece.start,
                       piece.per_byte);
    TRAINSTONE_REQUIRE(i == 0 || piece.from_bytes > m_pieces[i - 1].from_bytes,
                       "piece {} begins at {} bytes, not after the one before it", i, piece.from_bytes);
  }
}

double PiecewiseLinear::operator()(double bytes) const {
  std::size_t i = m_pieces.size() - 1;
  while (i > 0 && bytes < m_pieces[i].from_bytes) --i;
  return m_pieces[i].start + m_pieces[i].per_byte * bytes;
}

double seconds_among(PiecewiseLinear const& curve, double bytes, double touched) {
  constexpr double touched_by_probe = 2; // times its bytes: what is sent or added, and where it comes
  double const alone = curve(bytes);
  double const as_large = touched / touched_by_probe;
  return as_large <= bytes ? alone : std::max(alone, curve(as_large) / as_large * bytes);
}

MachineModel uniform_machine(AlphaBetaGamma const& constants) {
  MachineModel machine;
  for (Link const link : {Link::intra, Link::inter}) machine.set_messages(link, {constants.alpha, constants.beta});
  machine.reduce = PiecewiseLinear(0, constants.gamma);
  machine.combine_to_own = PiecewiseLinear(0, constants.gamma);
  machine.combine_to_all = PiecewiseLinear(0, constants.gamma);
  return machine;
}

} // namespace trainstone
