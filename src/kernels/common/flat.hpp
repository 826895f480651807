#pragma once

// How kernels go over flat vectors, of which element i becomes what elements i of all vectors say. Owns the policies (a
// team per chunk) and the loop inside a team: vector code on the host; on a device each lane takes packets of
// neighbours, of which no access is longer than 16 bytes. Promises: every element is computed once, by the same
// instructions in a packet as alone, if the compiler may not fuse a product with a sum.
// A body is a structure with `packet`, which says how many elements a lane of a device takes at once, with
// `is_aligned()`, which says whether packets may begin where its vectors begin, and with `operator()(i, Width<n>)`,
// which computes elements i ... i + n - 1, where n is 1 or `packet`.
// Included by files of kernels' bodies only.

#include "core/launch.hpp"
#include "kernels/common/row.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace trainstone::Impl {

/// How many elements of these types are at most 16 bytes of each.
template <class... T>
inline constexpr int packet_of = 16 / static_cast<int>(std::max({sizeof(T)...}));

template <int n>
using Width = std::integral_constant<int, n>;

/// Neighbours that are read and written at once.
template <class T, int n>
struct alignas(n * sizeof(T)) Packet {
  T elements[n];
  KOKKOS_FORCEINLINE_FUNCTION T& operator[](int i) { return elements[i]; }
  KOKKOS_FORCEINLINE_FUNCTION T const& operator[](int i) const { return elements[i]; }
};

template <int n, class T>
KOKKOS_FORCEINLINE_FUNCTION Packet<T, n> load_packet(T const* from) {
  if constexpr (n == 1)
    return {{*from}};
  else
    return *reinterpret_cast<Packet<T, n> const*>(from);
}

/// On a device by an instruction of CUDA, because nvcc stores some structures in pieces. Nothing reads it again soon.
template <int n, class T>
KOKKOS_FORCEINLINE_FUNCTION void store_packet(T* to, Packet<T, n> const& packet) {
  if constexpr (n == 1) {
    *to = packet[0];
  } else {
    KOKKOS_IF_ON_HOST((*reinterpret_cast<Packet<T, n>*>(to) = packet;))
    KOKKOS_IF_ON_DEVICE((using Word = std::conditional_t<sizeof(packet) == 16, uint4, uint2>;
                         __stcs(reinterpret_cast<Word*>(to), Kokkos::bit_cast<Word>(packet));))
  }
}

/// In fp32. Of one element without a packet in between, through which g++ does not see neighbours.
template <int n, class T>
KOKKOS_FORCEINLINE_FUNCTION Packet<float, n> load_floats(T const* from) {
  if constexpr (n == 1) {
    return {{to_float(*from)}};
  } else {
    Packet<T, n> const stored = load_packet<n>(from);
    Packet<float, n> values;
    for (int i = 0; i < n; ++i) values[i] = to_float(stored[i]);
    return values;
  }
}

template <int n, class T>
KOKKOS_FORCEINLINE_FUNCTION void store_floats(T* to, Packet<float, n> const& values) {
  if constexpr (n == 1) {
    *to = from_float<T>(values[0]);
  } else {
    Packet<T, n> rounded;
    for (int i = 0; i < n; ++i) rounded[i] = from_float<T>(values[i]);
    store_packet<n>(to, rounded);
  }
}

/// Whether packets of `n` elements may begin where the vectors begin.
template <class... T>
bool aligned_for(int n, T const*... vectors) {
  return ((reinterpret_cast<std::uintptr_t>(vectors) % (static_cast<std::size_t>(n) * sizeof(T)) == 0) && ...);
}

/// The lane of a warp that runs.
struct WarpLane {
  /// All lanes of the warp must call it.
  KOKKOS_FORCEINLINE_FUNCTION float from_lane_beside(float value, [[maybe_unused]] int difference) const {
    KOKKOS_IF_ON_DEVICE((value = __shfl_xor_sync(0xFFFFFFFFU, value, difference);))
    return value;
  }
};

/// One thread goes over a chunk.
struct HostChunks {
  template <class Body>
  static constexpr Index elements = chunk_size;

  template <class Body>
  static RowPolicy policy(ExecutionSpace const& exec, Index count) {
    return row_policy(exec, divide_up(count, chunk_size));
  }

  template <class Body>
  KOKKOS_INLINE_FUNCTION static void run([[maybe_unused]] Team const& team, Index begin, Index end, bool /*aligned*/,
                                         Body const& body) {
    Body const local = body;
    vector_for(end - begin, [&](Index i) { local(begin + i, Width<1>()); });
  }
};

/// Short chunks, of which every lane has two packets: there are many teams also where vectors are short, and no loop
/// keeps one packet's loads behind the stores of another. Runs anywhere with the same bits; for tests on hosts, too.
struct DeviceChunks {
  static constexpr int lanes = 256, packets = 2;
  template <class Body>
  static constexpr Index elements = Index{lanes} * packets * Body::packet;

  template <class Body>
  static RowPolicy policy(ExecutionSpace const& exec, Index count) {
    int const teams = static_cast<int>(divide_up(count, elements<Body>));
    return host_reaches_memory ? RowPolicy(exec, teams, 1) : RowPolicy(exec, teams, lanes);
  }

  template <class Body>
  KOKKOS_INLINE_FUNCTION static void run(Team const& team, Index begin, Index end, bool aligned, Body const& body) {
    constexpr int n = Body::packet;
    int const size = static_cast<int>(end - begin);
    int const before = aligned ? static_cast<int>(minimum((n - begin % n) % n, size)) : size;
    int const in_packets = (size - before) / n * n;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, in_packets / n),
                         [&](int k) { body(begin + before + Index{n} * k, Width<n>()); });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, size - in_packets),
                         [&](int k) { body(begin + (k < before ? k : k + in_packets), Width<1>()); });
  }
};

using FlatChunks = std::conditional_t<host_reaches_memory, HostChunks, DeviceChunks>;

/// Computes elements 0 ... count - 1.
template <class Chunks = FlatChunks, class Body>
void launch_flat(Kernel const& kernel, ExecutionSpace const& exec, Index count, Body const& body) {
  bool const aligned = body.is_aligned();
  launch_for(
      kernel, Chunks::template policy<Body>(exec, count), KOKKOS_LAMBDA(Team const& team) {
        Index const begin = team.league_rank() * Chunks::template elements<Body>;
        Chunks::run(team, begin, minimum(begin + Chunks::template elements<Body>, count), aligned, body);
      });
}

} // namespace trainstone::Impl
