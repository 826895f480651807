#pragma once

// A distributed product C (m, n) = A (m, k) B (k, n), before it exists: the ranks as a grid, what each rank holds, and
// what it does, step by step. Owns the ways in which lectures distribute a product. Plain values and pure functions:
// tests play them on whole numbers without MPI, and the executor plays them on messages. Does not multiply, and does
// not measure. Sources: Agarwal et al., A three-dimensional approach to parallel matrix multiplication (1995); van de
// Geijn and Watts, SUMMA (1997); Cannon's algorithm (1969); Solomonik and Demmel, 2.5D algorithms (2011).

#include "comm/schedule/problem.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

struct ProductSize {
  Index m = 0, n = 0, k = 0;
  bool operator==(ProductSize const&) const = default;
};

enum class Operand { a, b, c };
std::string_view to_string(Operand operand);

/// Ranks that differ in this coordinate alone.
enum class Line { x, y, z };
std::string_view to_string(Line line);

/// Ranks as a box: x cuts n, y cuts k, z cuts m. Rank x + gx (y + gy z).
struct ProductGrid {
  Rank x = 1, y = 1, z = 1;

  struct Place {
    Rank x = 0, y = 0, z = 0;
    bool operator==(Place const&) const = default;
  };
  Rank ranks() const { return x * y * z; }
  Rank size(Line line) const { return line == Line::x ? x : line == Line::y ? y : z; }
  Place place(Rank rank) const { return {rank % x, rank / x % y, rank / (x * y)}; }
  Rank rank(Place const& place) const { return place.x + x * (place.y + y * place.z); }
  /// The number of a rank in its line, and which line of this direction it is in. A line's ranks ascend.
  Rank index(Line line, Rank rank) const;
  Rank number(Line line, Rank rank) const;
  /// The ranks of this rank's line.
  std::vector<Rank> members(Line line, Rank rank) const;
  bool operator==(ProductGrid const&) const = default;
};
/// "2 x 2 x 1"
std::string to_string(ProductGrid const& grid);

enum class ProductAlgorithm {
  grid,       ///< Agarwal: gathers blocks of A and B, adds up blocks of C; on (P, 1, 1) and (1, 1, P) one-dimensional
  summa,      ///< on (q, 1, q): broadcasts a panel of A and one of B in each of q steps
  cannon,     ///< on (q, 1, q): shifts blocks of A and B to neighbours q - 1 times
  replicated, ///< 2.5-D, on (q, c, q), c divides q: c layers with copies of A and B shift q/c - 1 times each
};

/// Where a rank holds something. Cannon's A and B are two halves: a block, and room for the next one.
enum class ProductBuffer { a, b, c, gathered_a, gathered_b, partial_c };
inline constexpr std::size_t product_buffers = 6;
/// Of what it holds elements.
Operand operand_of(ProductBuffer buffer);

/// A range of a buffer.
struct ProductSlice {
  ProductBuffer buffer = ProductBuffer::a;
  Range range;
  bool operator==(ProductSlice const&) const = default;
};

/// One step of a rank. All ranks of a line make the exchanges of the line together and in one order.
struct ProductStep {
  enum class Act { copy, exchange, multiply };
  Act act = Act::copy;
  int phase = 0; ///< ascending; what ranks do at the same stage of the algorithm has the same number.
                 ///< Copies of a phase come before its exchange

  ProductSlice from = {}, to = {}; ///< of copies

  Operand operand = Operand::a; ///< of exchanges: of what, along which line, in which slice
  Line line = Line::x;
  ProductSlice data = {};
  bool swapped = false; ///< of send_receive: the block lies in the second half, and the first one receives
  Problem problem = {}; ///< of the ranks of the line
  Algorithm algorithm = Algorithm::direct;

  ProductSize size = {}; ///< of multiplications: to_c (m, n) = or += a (m, k) b (k, n), rows one after the other
  ProductSlice a = {}, b = {}, to_c = {};
  bool adds = false;
};

/// What one rank does and holds. Blocks of A, B and C lie row by row.
struct ProductPlan {
  ProductAlgorithm algorithm = ProductAlgorithm::grid;
  ProductGrid grid;
  ProductSize size; ///< Cannon and 2.5-D: padded to equal blocks
  Rank rank = 0;
  std::array<Index, product_buffers> elements{}; ///< by ProductBuffer
  std::vector<ProductStep> steps;

  Index elements_of(ProductBuffer buffer) const { return elements[static_cast<std::size_t>(buffer)]; }
};

/// A part of an operand that a rank holds at the start (A, B) or at the end (C).
struct HeldBlock {
  Range rows, columns;  ///< of the operand: the block
  Range share;          ///< of the block's elements, row by row: which this rank holds
  ProductSlice slice{}; ///< where
};

/// \throws InputError if the algorithm does not fit the grid, with the legal grids of as many ranks
void require_grid(ProductAlgorithm algorithm, ProductGrid const& grid);

/// The size with which blocks are equal, where the algorithm shifts them; else the size itself.
ProductSize padded_size(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size);

/// What a rank does. \param[in] topology  of all ranks
/// \throws InputError as require_grid(), if the grid is of another number of ranks, or if an extent is not positive
ProductPlan plan_product(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size,
                         Topology const& topology, Rank rank);

/// What a rank holds of the user's operand, in a product of the padded size. Nothing on layers that only compute.
std::optional<HeldBlock> held_block(ProductPlan const& plan, Operand operand);

/// All boxes of so many ranks, x the fastest to change.
std::vector<ProductGrid> grids_of(Rank ranks);

} // namespace trainstone
