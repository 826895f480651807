#pragma once

// The machine that schedules are priced on: what a message, a reduction, a copy and an access to shared memory take.
// Plain values, from a uniform alpha-beta-gamma machine, or fitted to measurements (calibration.hpp) and kept in a
// file (peaks.json). Does not measure and does not know schedules.

#include "comm/schedule/topology.hpp"
#include "comm/simulation/interconnect.hpp"

#include <array>
#include <vector>

namespace trainstone {

/// Seconds as a function of bytes: straight lines, each from its own number of bytes on.
class PiecewiseLinear {
public:
  struct Piece {
    double from_bytes; ///< of the first piece: 0
    double start;      ///< seconds, extrapolated to 0 bytes
    double per_byte;   ///< seconds
    bool operator==(Piece const&) const = default;
  };

  /// Nothing takes any time.
  PiecewiseLinear() : PiecewiseLinear(0, 0) {}
  PiecewiseLinear(double start, double per_byte) : m_pieces{{0, start, per_byte}} {}
  /// \throws Error unless the pieces ascend from 0 bytes and their values are finite
  explicit PiecewiseLinear(std::vector<Piece> pieces);

  double operator()(double bytes) const;
  std::vector<Piece> const& pieces() const { return m_pieces; }
  bool operator==(PiecewiseLinear const&) const = default;

private:
  std::vector<Piece> m_pieces;
};

/// One full-duplex port per rank by default: a message occupies its sender's and its receiver's port for its time, and
/// a port of both nodes if these have a limited number.
struct MachineModel {
  /// By bytes sent; start-up (alpha) included. `message` holds for ranks that send and receive in the same round,
  /// `one_way` for ranks that do one of the two. If one rank of a pair exchanges and the other only sends, the message
  /// takes the slower curve.
  std::array<PiecewiseLinear, link_count> message;
  std::array<PiecewiseLinear, link_count> one_way;
  /// How much of a local move is hidden behind messages that are under way: 1 where others than the rank itself carry
  /// them, 0 where it copies them with its own hands.
  std::array<double, link_count> overlap{1, 1};
  PiecewiseLinear reduce;         ///< by bytes added
  PiecewiseLinear copy;           ///< by bytes copied, inside a rank's own memory
  PiecewiseLinear combine_to_own; ///< a sum of neighbours' data, by bytes read and written
  PiecewiseLinear combine_to_all; ///< the same, written to all neighbours
  PiecewiseLinear fetch;          ///< a copy from or to a neighbour, by bytes read and written
  PiecewiseLinear push;           ///< a push into a neighbour's memory, by bytes read and written
  double node_barrier = 0;        ///< seconds
  int ports = 1;                  ///< messages that a rank can send, and receive, at the same time
  int node_ports = 0;             ///< messages that a node can send to others, and receive, at the same time; 0: any
  Interconnect network;           ///< what messages between nodes share beyond these ports

  PiecewiseLinear& of(Link link) { return message[static_cast<std::size_t>(link)]; }
  PiecewiseLinear const& of(Link link) const { return message[static_cast<std::size_t>(link)]; }
  void set_messages(Link link, PiecewiseLinear const& curve) { // whether the other one sends, too, or not
    message[static_cast<std::size_t>(link)] = one_way[static_cast<std::size_t>(link)] = curve;
  }
  bool operator==(MachineModel const&) const = default;
};

/// A move of `bytes` by a rank that touches `touched` bytes in the whole of its schedule. Curves are measured where one
/// move comes after the other on the same data (calibration_probes.hpp), which small ones find in the caches; one of
/// many that go through a large buffer does not, and takes no less per byte than a move that has as much to itself.
double seconds_among(PiecewiseLinear const& curve, double bytes, double touched);

/// Every message alpha + beta * bytes, every reduction gamma per byte added, every combine in shared memory gamma per
/// byte read or written; copies, fetches, pushes and node barriers are free.
struct AlphaBetaGamma {
  double alpha = 0; ///< seconds to start a message
  double beta = 0;  ///< seconds per byte sent
  double gamma = 0; ///< seconds per byte reduced
};
MachineModel uniform_machine(AlphaBetaGamma const& constants);

} // namespace trainstone
