// Prints, as JSON, how each kernel on tensor cores is started: the bytes of shared memory that a block asks for, and
// how many blocks are to share a multiprocessor. These are the constants that start it. perf/device/kernel_report reads
// them. Runs anywhere.

#include "kernels/cuda/kernel_sets.hpp"

#include <cstdio>
#include <string>

using namespace trainstone;

namespace {

struct NoLane; ///< sizes do not depend on it

struct KeyMask { ///< of the real one's sizes, without what it needs of Kokkos
  static constexpr bool drops = true;
};

std::string lines; ///< "NAME": {"shared": BYTES, "blocks": NUMBER}

template <class Kernel>
void add(char const* name, std::string const& arguments) {
  lines += (lines.empty() ? "\n \"" : ",\n \"") + std::string(name) + arguments +
           "\": {\"shared\": " + std::to_string(Kernel::shared_bytes) +
           ", \"blocks\": " + std::to_string(Kernel::Tiles::blocks) + "}";
}

/// \param[in] lane  how the report names kernels of the set
template <class Set, class T, int head_size, class Mask>
void add_kernels(std::string const& lane) {
  std::string const arguments = std::string(T::is_bf16 ? "<Bf16, " : "<Fp16, ") + std::to_string(head_size) +
                                (Mask::drops ? ", KeyMask" : ", KeepsAll") + lane + ">";
  using Kernels = Cuda::KernelsOf<Set, T, head_size, Mask, NoLane>;
  add<typename Kernels::Forward>("AttentionForward", arguments);
  add<typename Kernels::Queries>("AttentionQueries", arguments);
  add<typename Kernels::Keys>("AttentionKeys", arguments);
}

template <class Set, class T, int... head_sizes>
void add_all(std::string const& lane) {
  (add_kernels<Set, T, head_sizes, Cuda::KeepsAll>(lane), ...);
  (add_kernels<Set, T, head_sizes, KeyMask>(lane), ...);
}

template <class Set>
void add_set(std::string const& lane) {
  add_all<Set, Cuda::Bf16, 64, 80, 96, 128>(lane);
  add_all<Set, Cuda::Fp16, 64, 80, 96, 128>(lane);
}

} // namespace

int main() {
  add_set<Cuda::WarpKernels>("");
  add_set<Cuda::WarpgroupKernels>(", DeviceWarpgroupLane");
  std::printf("{%s\n}\n", lines.c_str());
  return 0;
}
