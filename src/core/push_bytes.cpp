#include "core/push_bytes.hpp"

#include <cstring>

#ifdef __x86_64__
#include <emmintrin.h>

#include <cstdint>
#endif

namespace trainstone {

#ifdef __x86_64__

namespace {

constexpr std::size_t line = 64;

/// The processor's own string copy. It takes lines without reading them first.
void copy_string(std::byte const* from, std::byte* to, std::size_t bytes) {
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

void stream_line(std::byte const* from, std::byte* to) {
  auto const* const source = reinterpret_cast<__m128i const*>(from);
  auto* const target = reinterpret_cast<__m128i*>(to);
  __m128i const a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1), c = _mm_loadu_si128(source + 2),
                d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
}

void stream(std::byte const* from, std::byte* to, std::size_t bytes) {
  std::size_t const head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  std::memcpy(to, from, head);
  std::size_t done = head;
  for (; done + line <= bytes; done += line) stream_line(from + done, to + done);
  std::memcpy(to + done, from + done, bytes - done);
  _mm_sfence(); // streamed stores are not ordered by a later release store
}

} // namespace

/// Measured with two ranks on Zen 5: for fewer bytes than least_streamed_bytes the string copy is up to 5 times faster
/// than streamed stores where the cores share a cache, and as fast where they do not.
void push_bytes(std::byte const* from, std::byte* to, std::size_t bytes) {
  if (bytes >= least_streamed_bytes)
    stream(from, to, bytes);
  else
    copy_string(from, to, bytes);
}

#else

void push_bytes(std::byte const* from, std::byte* to, std::size_t bytes) { std::memcpy(to, from, bytes); }

#endif

} // namespace trainstone
