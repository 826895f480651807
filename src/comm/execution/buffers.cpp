#include "comm/execution/buffers.hpp"

#include "core/cuda_check.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"

#include <array>
#include <cstring>
#include <utility>

namespace trainstone {

namespace {

template <class Space>
using Bytes = Kokkos::View<std::byte*, Kokkos::LayoutRight, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class Space>
using ConstBytes = Kokkos::View<std::byte const*, Kokkos::LayoutRight, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

#ifdef KOKKOS_ENABLE_CUDA

/// On the device of exec, which is not that of a thread that has not used it before.
std::shared_ptr<void> make_event(ExecutionSpace const& exec) {
  check_cuda(cudaSetDevice(exec.cuda_device()), "cudaSetDevice");
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return {event, [](void* made) { cudaEventDestroy(static_cast<cudaEvent_t>(made)); }};
}

void record_event(void* event, ExecutionSpace const& exec) {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(event), exec.cuda_stream()), "cudaEventRecord");
}

bool has_ended(void* event) {
  cudaError_t const code = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (code == cudaErrorNotReady) return false;
  check_cuda(code, "cudaEventQuery");
  return true;
}

void wait_for_event(ExecutionSpace const& exec, void* event) {
  check_cuda(cudaStreamWaitEvent(exec.cuda_stream(), static_cast<cudaEvent_t>(event), 0), "cudaStreamWaitEvent");
}

Device device_in_use() {
  int number = 0;
  check_cuda(cudaGetDevice(&number), "cudaGetDevice");
  std::array<char, 32> bus{};
  check_cuda(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), number), "cudaDeviceGetPCIBusId");
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, number), "cudaGetDeviceProperties");
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {bus.data(), properties.name, total};
}

/// An allocation of its own, never a piece of one: a handle gives away the whole. Kokkos may take memory from a pool,
/// which has no such handles.
std::byte* allocate_exported(std::uint64_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
  check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
  check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
  return static_cast<std::byte*>(memory);
}

MemoryExport::Handle handle_of(std::byte* allocated) {
  cudaIpcMemHandle_t handle{};
  check_cuda(cudaIpcGetMemHandle(&handle, allocated), "cudaIpcGetMemHandle");
  MemoryExport::Handle bytes;
  static_assert(sizeof handle == sizeof bytes);
  std::memcpy(bytes.data(), &handle, sizeof handle);
  return bytes;
}

std::byte* map_exported(MemoryExport::Handle const& bytes) {
  cudaIpcMemHandle_t handle{};
  std::memcpy(&handle, bytes.data(), sizeof handle);
  void* memory = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  return static_cast<std::byte*>(memory);
}

/// After an error kernels may still read there.
void unmap_exported(std::byte* mapped) noexcept {
  cudaDeviceSynchronize();
  if (cudaIpcCloseMemHandle(mapped) != cudaSuccess) static_cast<void>(cudaGetLastError());
}
void free_exported(std::byte* allocated) noexcept {
  if (cudaFree(allocated) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

// Smaller allocations share 2 MiB with others, which a handle would give away, too.
constexpr MemoryExport export_of_device{std::uint64_t{2} << 20, allocate_exported, handle_of,
                                        map_exported,           unmap_exported,    free_exported};
MemoryExport const* export_in_use() { return &export_of_device; }

#else

static_assert(launches_wait, "of devices, CUDA's alone have events here");
std::shared_ptr<void> make_event(ExecutionSpace const&) { return nullptr; }
void record_event(void*, ExecutionSpace const&) {}
bool has_ended(void*) { return true; }
void wait_for_event(ExecutionSpace const&, void*) {}
Device device_in_use() { return {}; }
MemoryExport const* export_in_use() { return nullptr; }

#endif

} // namespace

std::string buffers_refusal(std::string_view name) {
  std::optional<MessageBuffers> const buffers = parse_message_buffers(name);
  bool const wants_device = buffers == MessageBuffers::device, wants_host = buffers == MessageBuffers::host;
  if (host_reaches_memory ? !wants_device : !wants_host) return "";
  return fmt::format(
      "comm.buffers = \"{}\" gives MPI {} memory itself, and this build's kernels work on the {}'s; legal "
      "values: auto, staged, {}",
      name, name, host_reaches_memory ? "host" : "device", host_reaches_memory ? "host" : "device");
}

MessageBuffers resolve_buffers(std::string_view name) {
  std::string const refusal = buffers_refusal(name);
  TRAINSTONE_REQUIRE_INPUT(refusal.empty(), "{}", refusal);
  return parse_message_buffers(name).value_or(host_reaches_memory ? MessageBuffers::host : MessageBuffers::staged);
}

Device current_device() { return device_in_use(); }

PinnedMemory::PinnedMemory(MemoryLedger& ledger, std::string const& label, std::uint64_t bytes, MemoryCategory category)
    : m_ledger(&ledger),
      m_category(category),
      m_memory(Kokkos::view_alloc("trainstone::" + label, Kokkos::WithoutInitializing), bytes) {
  m_ledger->add(m_category, m_memory.extent(0));
}

PinnedMemory::~PinnedMemory() {
  if (m_ledger) m_ledger->remove(m_category, m_memory.extent(0));
}

void PinnedMemory::swap(PinnedMemory& other) noexcept {
  std::swap(m_ledger, other.m_ledger);
  std::swap(m_category, other.m_category);
  std::swap(m_memory, other.m_memory);
  std::swap(m_used, other.m_used);
}

std::span<std::byte> PinnedMemory::take(std::uint64_t bytes) {
  std::uint64_t const size = memory_footprint(bytes);
  TRAINSTONE_REQUIRE(m_used + size <= capacity(), "pinned memory exhausted: {} bytes are asked for, {} of {} are used",
                     size, m_used, capacity());
  std::byte* const first = m_memory.data() + std::exchange(m_used, m_used + size);
  return {first, bytes};
}

CopyInstances::CopyInstances(ExecutionSpace const& exec) : out(exec), in(exec) {
  if constexpr (!launches_wait) {
    auto const parts = Kokkos::Experimental::partition_space(exec, 1, 1);
    out = parts[0];
    in = parts[1];
  }
}

ExecutionSpace communication_instance(ExecutionSpace const& exec) {
  if constexpr (launches_wait)
    return exec;
  else
    return Kokkos::Experimental::partition_space(exec, 1)[0];
}

void copy_to_pinned(ExecutionSpace const& exec, std::byte const* from, std::span<std::byte> pinned) {
  Kokkos::deep_copy(exec, Bytes<PinnedSpace>(pinned.data(), pinned.size()),
                    ConstBytes<MemorySpace>(from, pinned.size()));
}

void copy_from_pinned(ExecutionSpace const& exec, std::span<std::byte const> pinned, std::byte* to) {
  Kokkos::deep_copy(exec, Bytes<MemorySpace>(to, pinned.size()), ConstBytes<PinnedSpace>(pinned.data(), pinned.size()));
}

void order_after(ExecutionSpace const& first, ExecutionSpace const& then) {
  if (launches_wait || first == then) return;
  std::shared_ptr<void> const event = make_event(first); // CUDA keeps a destroyed one until it was waited for
  record_event(event.get(), first);
  wait_for_event(then, event.get());
}

void InstanceEvent::record(ExecutionSpace const& exec) {
  if (!m_event) m_event = make_event(exec);
  record_event(m_event.get(), exec);
}

bool InstanceEvent::is_done() const {
  if (held_events() && held_events()()) return false;
  return has_ended(m_event.get());
}

MemoryExport const* memory_export() { return played_export() ? played_export()() : export_in_use(); }

PlayedExport& played_export() {
  static constinit PlayedExport instance;
  return instance;
}

HeldEvents& held_events() {
  static constinit HeldEvents instance;
  return instance;
}

} // namespace trainstone
