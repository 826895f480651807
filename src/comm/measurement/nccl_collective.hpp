#pragma once

// NCCL's collectives on the same problems: a control of measurements beside MPI's own, where a build has NCCL
// (cmake/nccl.cmake). Owns NCCL's communicator and the translation of a Problem into one call in place. Promises: the
// same meaning as problem.hpp says. Is not counted: it is not ours.

#include "comm/execution/communicator.hpp"
#include "comm/schedule/element.hpp"
#include "comm/schedule/problem.hpp"
#include "core/hook.hpp"
#include "core/views.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace trainstone {

/// "ranks 0 and 2 share a device"; empty if no two ranks of a node do. \param[in] devices  of all ranks; empty: the
/// host
std::string find_shared_device(std::vector<std::string> const& devices, Topology const& topology);

/// Why NCCL is not measured with this; empty if it is. The reason is the same for all sizes.
std::string nccl_refusal(Problem const& problem);

/// The library as it is called. Those that may fail throw Error with the call and what NCCL says.
struct NcclCalls {
  /// Arguments of a collective, as nccl.h has them.
  struct Call {
    Collective collective;
    std::byte const* from;
    std::byte* to;
    std::size_t count; ///< elements: of one block where the data is in blocks of the ranks
    ElementType type;
    Operation operation;
    Rank root;
  };

  using Id = std::array<std::byte, 128>;

  std::string (*version)(); ///< "2.28.9"
  /// Of a communicator to come. Finds out whether NCCL works on this rank.
  Id (*make_id)();
  /// Waits for all ranks of this id: a rank that does not come leaves the others here. \return NCCL's communicator
  std::shared_ptr<void> (*join)(Id const& id, Rank rank, Rank ranks);
  /// Enqueues the call on exec.
  void (*start)(void* joined, Call const& call, ExecutionSpace const& exec);
};
/// Null in builds without NCCL.
NcclCalls const* nccl_calls();
/// With this function, tests make a build look like one with NCCL.
using PlayedNccl = Hook<NcclCalls const*()>;
PlayedNccl& played_nccl();

/// A collective that is ready to be started, as often as wanted. The communicator must outlive it.
struct NcclCollective {
  NcclCalls const* calls;
  void* joined;
  NcclCalls::Call call;
  /// Enqueues it on exec; the result will lie in the data where problem.hpp has it.
  void start(ExecutionSpace const& exec) const { calls->start(joined, call, exec); }
};

class NcclCommunicator {
public:
  /// Collective. Of builds with NCCL. The communicator has its real nodes, not emulated ones.
  /// \throws CollectiveError on all ranks: two of them share a device (exit 64), NCCL does not begin on one of them, or
  ///         joining has ended with an error on one of them
  explicit NcclCommunicator(Communicator const& communicator);

  /// \param[in,out] data  (problem.elements())    \throws InputError if nccl_refusal() has a reason
  template <class T>
  NcclCollective call(Problem const& problem, Operation operation, Vector<T> data) const {
    return call(problem, operation, element_type_of<T>(), reinterpret_cast<std::byte*>(data.data()));
  }

private:
  NcclCollective call(Problem const& problem, Operation operation, ElementType type, std::byte* data) const;

  NcclCalls const* m_calls;
  Rank m_rank;
  std::shared_ptr<void> m_joined;
};

} // namespace trainstone
