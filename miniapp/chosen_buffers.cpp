// Which memory messages and neighbours use, as the ranks of a command have proved it.

#include "commands.hpp"

#include "comm/execution/buffers_start.hpp"
#include "deck/deck_checks.hpp"

namespace trainstone {

DeviceFindings use_chosen_buffers(Communicator& communicator, std::string const& name, ExecutionSpace const& exec) {
  DeviceFindings found = prove_device_memory(communicator, exec);
  use_chosen_buffers(communicator, name, exec, found);
  return found;
}

void use_chosen_buffers(Communicator& communicator, std::string const& name, ExecutionSpace const& exec,
                        DeviceFindings const& found) {
  MessageBuffers buffers = MessageBuffers::host;
  collectively(communicator, [&] { buffers = choose_buffers(name, found.messages); });
  communicator.use_buffers(buffers, exec);
  communicator.use_neighbours_memory(found.neighbours.proved);
}

void require_neighbours_memory(RunConfig const& config, NeighbourMemory const& found) {
  if (found.proved) return;
  if (std::optional<ConfigProblem> const problem = find_neighbours_problem(config, found.finding))
    throw CollectiveError(problem->message, ExitCode::does_not_fit);
}

} // namespace trainstone
