// What attention by cuDNN supports and costs: of every build, so that plans of CUDA builds can be made on hosts.

#include "kernels/cuda/cudnn_attention.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

/// cuDNN asks for it beside what it names: it aligns its workspace by itself.
constexpr Index slack_bytes = 256;

constexpr Index round_up(Index count, Index unit) { return (count + unit - 1) / unit * unit; }

Index numbers_of(Index bytes) { return (bytes + 3) / 4; }

} // namespace

std::string cudnn_attention_problem(Storage storage, Index sequence, Index head_size, bool drops) {
  if (storage == Storage::fp32) return "attention by cuDNN has values of 16 bits, not fp32";
  if (head_size < 8 || head_size > 128 || head_size % 8 != 0)
    return fmt::format("attention by cuDNN has heads of 8, 16, .. 128 channels, not of {}", head_size);
  if (sequence == 1) return "attention by cuDNN has no backward of one position";
  if (drops) return "attention by cuDNN has no dropout whose masks are the same for every split";
  return "";
}

CudnnAttentionFlops cudnn_attention_flops(Index batch, Index sequence, Index heads, Index head_size) {
  Index const pairs = batch * heads * (sequence * (sequence + 1) / 2), of_product = 2 * head_size * pairs;
  return {static_cast<std::uint64_t>(2 * of_product), static_cast<std::uint64_t>(5 * of_product)};
}

Index cudnn_attention_forward_scratch() { return numbers_of(slack_bytes); }

Index cudnn_attention_backward_scratch(Index batch, Index sequence, Index heads) {
  Index const all = batch * heads, pairs = round_up(sequence, 64) * round_up(sequence, 128);
  return numbers_of(2 * all * pairs + 4 * all * sequence + 8 * batch + slack_bytes);
}

} // namespace trainstone
