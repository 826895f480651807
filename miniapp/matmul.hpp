#pragma once

// The flags of trainstone matmul, which measures one product of two matrices, distributed over the ranks in the ways
// that lectures teach. The value of a flag is kept as text until it is checked, so that a message about a wrong value
// can list the right ones.

#include "commands.hpp"
#include "kernels/gemm/gemm_shape.hpp"
#include "products/plan/product_choice.hpp"

#include <string>

namespace CLI {
class App;
}

namespace trainstone {

/// The arguments as typed.
struct MatmulArguments {
  std::string m, n, k;
  std::string grid = "auto";
  std::string algorithms; ///< empty: all that the number of ranks, or the grid, allows
  std::string type = "float";
  std::string gemm = "auto";
  std::string buffers = "auto"; ///< as comm.buffers
  std::string samples = "10";
  std::string emulated_nodes = "0";
  std::string machine_file; ///< empty: measured at the start
  std::string json_file;
};

struct MatmulOptions {
  ProductSize size;
  ProductChoices ways;
  Storage inputs = Storage::fp32;
  GemmProvider gemm = GemmProvider::automatic; ///< resolved
  int samples = 10;
};

void describe_matmul(CLI::App& command, MatmulArguments& arguments);
/// \throws InputError for the first argument that is wrong
MatmulOptions check_matmul(MatmulArguments const& arguments, Rank ranks);
int matmul(MatmulArguments const& arguments, RankContext& context);

} // namespace trainstone
