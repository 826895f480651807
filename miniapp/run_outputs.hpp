#pragma once

// The files that a run writes beside its result and its checkpoints: trace and model. Owns their memory, which
// is taken before the training and planned (train/run_plan.hpp), and how they are written. They are written when the
// result is on the medium: what goes wrong with them loses no run.

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

  /// From now on the trace is recorded, if one is asked for. Collective: all ranks begin together.
  void begin_trace();
  void end_trace();

  /// Writes what the deck asks for and prints what was written; no model of a training that has stopped. Collective.
  /// \throws CollectiveError (exit 70) that names the file, and the result's
  void write(Trainer& trainer, bool is_trained, std::string const& result_path);

private:
  void write_trace();
  void save_model(Trainer& trainer);

  PreparedRun const* m_run;
  RankContext* m_context;
  std::vector<float> m_part; ///< of the model that is saved, on the first rank
  LedgerEntry m_entry;       ///< of m_part and of the recording
  std::unique_ptr<Recording> m_recording;
};

} // namespace trainstone
