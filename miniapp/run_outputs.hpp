#pragma once

// The files that a run writes beside its result and its checkpoints: trace and model. Owns their memory, which is
// planned (train/plan/run_plan.hpp) and taken before the training, and writes them. They are written after the result
// is on the medium, so a failure loses no result.

#include "core/memory.hpp"
#include "core/timeline.hpp"
#include "run_setup.hpp"
#include "train/trainer.hpp"

#include <memory>
#include <string>
#include <vector>

namespace trainstone {

class RunOutputs {
public:
  /// Everything referred to must outlive the object.
  RunOutputs(PreparedRun const& run, RankContext& context, MemoryLedger& ledger);

  /// Begins to record the trace, if the deck asks for one. Collective: all ranks begin together.
  void begin_trace();
  void end_trace();

  /// Writes the files that the deck asks for and prints their names. Writes no model if the training was stopped.
  /// Collective.
  /// \param[in] holders  who have the whole model among them, rank 0 the same; null on other ranks
  /// \throws CollectiveError (exit 70) that names the file, and the result's
  void write(Trainer& trainer, Communicator const* holders, bool is_trained, std::string const& result_path);

private:
  void write_trace();
  void save_model(Trainer& trainer, bool holds);

  PreparedRun const* m_run;
  RankContext* m_context;
  std::vector<float> m_part; ///< of the model that is saved, on the first rank
  LedgerEntry m_entry;       ///< of m_part and of the recording
  std::unique_ptr<Recording> m_recording;
};

} // namespace trainstone
