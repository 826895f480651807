#pragma once

// The data of a run, opened: sources, held-out split, length in steps, and the BatchSources that the Trainer asks.
// Owns the sources. Checks every file before the run; the check of all tokens is for one rank to do.

#include "train/data/batch_loader.hpp"
#include "train/data/batches.hpp"
#include "train/plan/run_config.hpp"

#include <memory>

namespace trainstone {

/// Length of the synthetic sequence in tokens.
inline constexpr std::int64_t synthetic_tokens = std::int64_t{1} << 24;

enum class ScanTokens { no, yes };

class TrainingData {
public:
  /// Opens all files and checks their form; with ScanTokens::yes also reads them once from beginning to end, checks
  /// every token and data.xxhash. `config` is resolved.
  /// \throws InputError naming file and byte offset, or the numbers that do not fit
  TrainingData(RunConfig const& config, ScanTokens scan);

  std::int64_t training_samples() const { return m_split.training.count; }
  std::int64_t validation_samples() const { return m_split.held_out.count; }
  /// Steps of the run: as given, or as many as show every sample `epochs` times.
  std::int64_t steps() const { return m_steps; }
  /// The sources for the Trainer; they refer to this object, which must outlive them.
  TrainingBatches batches() const;
  /// From files, so far.
  FileReads reads() const;
  /// Of all training files; 0 where they were not scanned, or there are none.
  std::uint64_t xxhash() const { return m_xxhash; }

private:
  BatchConfig m_batch;
  std::uint64_t m_seed;
  std::uint64_t m_xxhash = 0;
  std::unique_ptr<TokenSource> m_training, m_validation;
  SampleSplit m_split;
  std::int64_t m_steps;
  BatchConfig m_held_out_batch;
  std::int64_t m_validation_batches = 0;
};

} // namespace trainstone
