#include "train/state_files.hpp"

#include "comm/execution/control.hpp"

#include <vector>

namespace trainstone {

ScratchFile const* state_file(ShardedEngine const& engine) {
  ScratchFile const* const file = engine.optimizer_state().file();
  return file ? file : engine.parameter_shares().file();
}

FilesOfRanks files_of_ranks(ExecutionSpace const& exec, Communicator& communicator, ScratchFile const* file) {
  std::vector<std::int64_t> counts{file ? 1 : 0, file && file->has_ring() ? 1 : 0, file && file->is_direct() ? 1 : 0};
  control_all_reduce(exec, communicator, Operation::sum, counts);
  FilesOfRanks files{counts[0], counts[1], counts[2]};
  if (file) files.folder = file->folder(), files.why_no_ring = file->why_no_ring();
  return files;
}

} // namespace trainstone
