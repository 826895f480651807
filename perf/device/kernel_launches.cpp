// Prints, as JSON, how each kernel on tensor cores is started: the bytes of shared memory that a block asks for, and
// how many blocks are to share a multiprocessor. These are the constants that start it. perf/device/kernel_report reads
// them. Runs anywhere.

#include "kernels/cuda/attention_forward.hpp"
#include "kernels/cuda/attention_keys.hpp"
#include "kernels/cuda/attention_queries.hpp"

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

template <class T, int head_size, class Mask>
void add_kernels() {
  std::string const arguments = std::string(T::is_bf16 ? "<Bf16, " : "<Fp16, ") + std::to_string(head_size) +
                                (Mask::drops ? ", KeyMask>" : ", KeepsAll>");
  add<Cuda::AttentionForward<T, head_size, Mask, NoLane>>("AttentionForward", arguments);
  add<Cuda::AttentionQueries<T, head_size, Mask, NoLane>>("AttentionQueries", arguments);
  add<Cuda::AttentionKeys<T, head_size, Mask, NoLane>>("AttentionKeys", arguments);
}

template <class T, int... head_sizes>
void add_all() {
  (add_kernels<T, head_sizes, Cuda::KeepsAll>(), ...);
  (add_kernels<T, head_sizes, KeyMask>(), ...);
}

} // namespace

int main() {
  add_all<Cuda::Bf16, 64, 80, 96, 128>();
  add_all<Cuda::Fp16, 64, 80, 96, 128>();
  std::printf("{%s\n}\n", lines.c_str());
  return 0;
}
