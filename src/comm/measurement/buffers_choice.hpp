#pragma once

// What a measurement can be told about memory: where its data lies, and what MPI is given of it. Owns the words of
// `--buffers` and which of them a build has. Plain values, without Kokkos; what device memory is proved by is
// comm/execution/buffers_start.hpp's.

#include "comm/schedule/message_buffers.hpp"

#include <string_view>
#include <vector>

namespace trainstone {

struct DeviceFindings;

struct BuffersChoice {
  std::string_view name;
  bool shared_memory; ///< data lies in memory that the ranks of a node share
  MessageBuffers messages;
};

/// The legal ones, the one that is taken unasked first. On devices data lies in shared memory if that is proved.
std::vector<BuffersChoice> buffers_choices(bool kernels_on_host, DeviceFindings const& found);

/// For messages as in a run with these buffers, with data in memory of a rank's own.
BuffersChoice own_buffers(MessageBuffers messages);

/// \param[in] name of `--buffers`; empty: unasked    \param[in] found  of prove_device_memory()
/// \throws InputError with the reason and the legal values
BuffersChoice choose_measured_buffers(std::string_view name, bool kernels_on_host, DeviceFindings const& found);

} // namespace trainstone
