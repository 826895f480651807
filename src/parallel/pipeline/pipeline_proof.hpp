#pragma once

// Plays the programs of all stages in one process, without MPI and without data. Owns the proof that they train what
// one stage alone would train: every micro-batch goes forward and backward through every chunk exactly once, a stage
// reads only what is there, every receive meets its own message, nothing is overwritten while it is needed, and no
// stage waits for ever. Promises: a proved set of programs is right with any timing, and also where a send ends only
// with its receive. A buffer counts as used from the start of a send or a receive until the wait for it. Does not prove
// that a program is fast.

#include "parallel/pipeline/stage_program.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

enum class PipelineDefect {
  malformed,          ///< a micro-batch, chunk or buffer that does not exist, or a message that the chunk does not have
  doubled,            ///< an operation or a message twice
  missing,            ///< a stage ends without an operation or a message
  not_there,          ///< something is read or sent that is not there yet
  wrong_buffer,       ///< a buffer that has something else
  written_while_used, ///< a slot or a buffer is taken that is still used
  other_message,      ///< a receive meets another message than its own
  waits_for_ever,     ///< a stage waits for what another stage never starts
  not_started,        ///< a wait for what was not started
  never_waited,       ///< what was started, and nothing waits for it
  wrong_count,        ///< a program has another number of slots or buffers than it uses at most
  mixed_order,        ///< gradients of a chunk are complete neither in ascending nor in descending order
};

std::string_view to_string(PipelineDefect defect);

struct PipelineFinding {
  PipelineDefect defect;
  Index stage;         ///< where it shows
  std::string message; ///< names stage and instruction, and what is wrong with it
};

/// When a stage goes on after a send.
enum class Sends {
  posted,   ///< at once; the wait for it ends with the receive
  blocking, ///< when the receive has been posted
};

/// The first defect of the programs of all stages. None: proved. Complexity: O(instructions).
std::optional<PipelineFinding> find_pipeline_defect(PipelineProgram const& program, Sends sends = Sends::posted);

/// Proves, and throws. \throws Error with the finding's message
void require_proved(PipelineProgram const& program);

/// By stage and instruction of programs without a defect: how many slots are in use behind the instruction.
/// \throws Error with the finding's message
std::vector<std::vector<Index>> slots_in_use(PipelineProgram const& program);

} // namespace trainstone
