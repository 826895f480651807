#pragma once

// A hash of a sequence of numbers, by which ranks compare what they were given without sending it. The same in every
// build and every run; no protection against intent.

#include <cstdint>

namespace trainstone {

/// FNV-1a, a word at a time: sequences of one length that differ in one word always differ.
class Fingerprint {
public:
  void add(std::uint64_t word) { m_value = (m_value ^ word) * 0x100000001b3u; }
  std::uint64_t value() const { return m_value; }
  bool operator==(Fingerprint const&) const = default;

private:
  std::uint64_t m_value = 0xcbf29ce484222325u;
};

} // namespace trainstone
