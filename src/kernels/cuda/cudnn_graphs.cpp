// The graphs of attention in cuDNN's C++ front end. Compiled as C++, and alone to include the front end.

#include "kernels/cuda/cudnn_graphs.hpp"

#include "core/error.hpp"

#define CUDNN_FRONTEND_SKIP_JSON_LIB // graphs are never written to files
#include <cudnn_frontend.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace trainstone::Cuda {

namespace {

namespace fe = cudnn_frontend;
using TensorAttributes = fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<TensorAttributes>;

/// Names of tensors in graphs.
enum class Id : std::int64_t { q = 1, k, v, out, log_sum_exp, d_out, d_q, d_k, d_v };

std::string describe(CudnnCall const& call) {
  return fmt::format("attention of {} sequences of {} positions, {} heads of {} channels in {}", call.batch,
                     call.sequence, call.heads, call.head_size, to_string(call.storage));
}

void check(fe::error_t error, CudnnCall const& call) { // a copy: it has no const functions
  if (error.is_good()) return;
  throw Error(fmt::format("cuDNN {}, {}: {}", cudnnGetVersion(), describe(call), error.get_message()));
}

void check(cudnnStatus_t status, char const* name) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error(fmt::format("{} of cuDNN {} failed: {}", name, cudnnGetVersion(), cudnnGetErrorString(status)));
}

fe::DataType_t data_type(Storage storage) {
  switch (storage) {
  case Storage::bf16: return fe::DataType_t::BFLOAT16;
  case Storage::fp16: return fe::DataType_t::HALF;
  case Storage::fp32: break;
  }
  throw Error(fmt::format("attention by cuDNN has no values in {}", to_string(storage)));
}

/// Extents and strides of tensors (B, NH, T, HS) in rows of all heads.
class Layout {
public:
  explicit Layout(CudnnCall const& call) : m_call(call) {}

  /// \param[in] row  channels of a row: C, or 3 C in qkv
  void set(TensorAttributes& tensor, Id id, Index row) const {
    auto const& [batch, sequence, heads, head_size, storage] = m_call;
    tensor.set_uid(static_cast<std::int64_t>(id))
        .set_dim({batch, heads, sequence, head_size})
        .set_stride({sequence * row, head_size, row, 1})
        .set_data_type(data_type(storage));
  }
  void set_log_sum_exp(TensorAttributes& tensor) const {
    auto const& [batch, sequence, heads, head_size, storage] = m_call;
    tensor.set_uid(static_cast<std::int64_t>(Id::log_sum_exp))
        .set_dim({batch, heads, sequence, 1})
        .set_stride({heads * sequence, sequence, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }
  Tensor input(fe::graph::Graph& graph, Id id, Index row) const {
    TensorAttributes attributes;
    set(attributes, id, row);
    return graph.tensor(attributes);
  }
  Index row() const { return m_call.heads * m_call.head_size; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(m_call.head_size)); }

private:
  CudnnCall m_call;
};

void set_types(fe::graph::Graph& graph, CudnnCall const& call) {
  graph.set_io_data_type(data_type(call.storage))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

void describe_forward(fe::graph::Graph& graph, CudnnCall const& call) {
  Layout const layout(call);
  Index const row = layout.row();
  auto const [out, log_sum_exp] = graph.sdpa(
      layout.input(graph, Id::q, 3 * row), layout.input(graph, Id::k, 3 * row), layout.input(graph, Id::v, 3 * row),
      fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true).set_causal_mask(true).set_attn_scale(
          layout.scale()));
  layout.set(out->set_output(true), Id::out, row);
  layout.set_log_sum_exp(log_sum_exp->set_output(true));
}

void describe_backward(fe::graph::Graph& graph, CudnnCall const& call) {
  Layout const layout(call);
  Index const row = layout.row();
  TensorAttributes log_sum_exp;
  layout.set_log_sum_exp(log_sum_exp);
  auto const [d_q, d_k, d_v] = graph.sdpa_backward(
      layout.input(graph, Id::q, 3 * row), layout.input(graph, Id::k, 3 * row), layout.input(graph, Id::v, 3 * row),
      layout.input(graph, Id::out, row), layout.input(graph, Id::d_out, row), graph.tensor(log_sum_exp),
      fe::graph::SDPA_backward_attributes()
          .set_name("backward")
          .set_causal_mask(true)
          .set_attn_scale(layout.scale())
          .set_deterministic_algorithm(true));
  layout.set(d_q->set_output(true), Id::d_q, 3 * row);
  layout.set(d_k->set_output(true), Id::d_k, 3 * row);
  layout.set(d_v->set_output(true), Id::d_v, 3 * row);
}

using Describe = void (*)(fe::graph::Graph&, CudnnCall const&);
using Pointers = std::unordered_map<std::int64_t, void*>;

/// Where the tensors of a graph begin: queries, keys and values of a row lie C apart.
Pointers pointers_of(CudnnCall const& call, CudnnMemory const& memory) {
  std::size_t const apart = static_cast<std::size_t>(call.heads * call.head_size) * bytes_per_value(call.storage);
  Pointers pointers;
  auto const add = [&](Id id, void* data) { pointers[static_cast<std::int64_t>(id)] = data; };
  auto const add_row = [&](std::array<Id, 3> const& ids, void* data) {
    for (std::size_t i = 0; i < ids.size(); ++i) add(ids[i], static_cast<std::byte*>(data) + i * apart);
  };
  add_row({Id::q, Id::k, Id::v}, memory.qkv);
  add(Id::out, memory.out);
  add(Id::log_sum_exp, memory.log_sum_exp);
  if (memory.d_qkv == nullptr) return pointers;
  add(Id::d_out, memory.d_out);
  add_row({Id::d_q, Id::d_k, Id::d_v}, memory.d_qkv);
  return pointers;
}

} // namespace

class CudnnGraph {
public:
  CudnnGraph(cudnnHandle_t handle, CudnnCall const& call, Describe describe) : m_call(call) {
    set_types(m_graph, call);
    describe(m_graph, call);
    check(m_graph.build(handle, {fe::HeurMode_t::A}), call);
    std::int64_t bytes = 0;
    check(m_graph.get_workspace_size(bytes), call);
    m_workspace_bytes = static_cast<std::uint64_t>(bytes);
  }

  void require(std::uint64_t workspace_bytes) const {
    TRAINSTONE_REQUIRE(m_workspace_bytes <= workspace_bytes,
                       "cuDNN {}, {}: it needs a workspace of {} bytes, and {} are planned", cudnnGetVersion(),
                       describe(m_call), m_workspace_bytes, workspace_bytes);
  }

  void run(cudnnHandle_t handle, CudnnMemory const& memory) const {
    Pointers pointers = pointers_of(m_call, memory);
    check(m_graph.execute(handle, pointers, memory.workspace), m_call);
  }

private:
  CudnnCall m_call;
  fe::graph::Graph m_graph;
  std::uint64_t m_workspace_bytes = 0;
};

struct CudnnGraphs::State {
  using Handle = std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, cudnnStatus_t (*)(cudnnHandle_t)>;
  using Graphs = std::map<CudnnCall, CudnnGraph>;

  std::mutex mutex; ///< of all below: a handle has one stream at a time
  Handle handle{nullptr, cudnnDestroy};
  Graphs forward, backward;

  CudnnGraph const& find(Graphs& graphs, CudnnCall const& call, Describe describe, std::uint64_t workspace_bytes) {
    std::scoped_lock const lock(mutex);
    CudnnGraph const& graph = graphs.try_emplace(call, handle.get(), call, describe).first->second;
    graph.require(workspace_bytes);
    return graph;
  }
};

CudnnGraphs::CudnnGraphs() : m_state(std::make_unique<State>()) {
  cudnnHandle_t raw = nullptr;
  check(cudnnCreate(&raw), "cudnnCreate");
  m_state->handle.reset(raw);
}

CudnnGraphs::~CudnnGraphs() = default;

CudnnGraph const& CudnnGraphs::forward(CudnnCall const& call, std::uint64_t workspace_bytes) {
  return m_state->find(m_state->forward, call, describe_forward, workspace_bytes);
}

CudnnGraph const& CudnnGraphs::backward(CudnnCall const& call, std::uint64_t workspace_bytes) {
  return m_state->find(m_state->backward, call, describe_backward, workspace_bytes);
}

void CudnnGraphs::run(CudnnGraph const& graph, CudnnMemory const& memory, CUstream_st* stream) {
  std::scoped_lock const lock(m_state->mutex);
  check(cudnnSetStream(m_state->handle.get(), stream), "cudnnSetStream");
  graph.run(m_state->handle.get(), memory);
}

} // namespace trainstone::Cuda
