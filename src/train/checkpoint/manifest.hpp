#pragma once

// The manifest of a checkpoint: everything but the vectors, and where these lie. Owns the text and its version.
// Promises: a text that differs from a written one in any byte is refused. Anybody can write a text with a correct
// hash, so read_manifest() also checks the values: file names are in one folder, a deck could have the model, and sizes
// fit the model. A value; does not open files.
//
// Text: a line "trainstone checkpoint VERSION XXH3", then JSON; the hash is that of the bytes behind the line.

#include "comm/schedule/partition.hpp"
#include "core/durable_file.hpp"
#include "core/index.hpp"
#include "model/parameter_table.hpp"
#include "parallel/servers/push_record.hpp"
#include "train/early_steps.hpp"
#include "train/loss_scaler.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trainstone {

/// Runs of a parameter group's elements, equally long and equally far apart: one, or about as many as a slice has rows
/// of a tensor whose columns are cut. All state vectors of them lie in a file one behind the other, in fp32: the
/// parameters (the master copy, where there is one), then the optimizer's moments.
struct CheckpointPart {
  Index group = 0;  ///< its number in the whole model
  Range range;      ///< the first run: of the group of whole tensors, without padding
  Index runs = 1;   ///< how many
  Index stride = 0; ///< elements from the begin of a run to that of the next one; of one run 0

  Index elements() const { return runs * range.size(); }
  Range run(Index number) const { return {range.begin + number * stride, range.end + number * stride}; }
  bool operator==(CheckpointPart const&) const = default;
};

struct CheckpointFile {
  std::string name; ///< in the checkpoint's folder
  FileDigest digest;
  std::vector<CheckpointPart> parts; ///< in the order in which they lie in it
  bool operator==(CheckpointFile const&) const = default;
};

/// A parameter group of whole tensors, without padding: the same for every number of ranks and stages.
struct CheckpointGroup {
  std::string name;
  Index size = 0;
  bool operator==(CheckpointGroup const&) const = default;
};

/// Those of a whole model, by number.
std::vector<CheckpointGroup> groups_of(GptConfig const& model);

/// The identity of a training by key, without the way in which it is computed. Two trainings with the same identity go
/// through the same steps.
using TrainingIdentity = std::vector<std::pair<std::string, std::string>>;

/// The progress of a training. Data position, learning rate and random counters follow from the step.
struct TrainingProgress {
  std::int64_t step = 0;    ///< that was completed
  std::int64_t updates = 0; ///< steps that were not skipped
  LossScaler::State loss_scaler;
  std::vector<double> losses; ///< of all steps
  std::int64_t restarts = 0;  ///< of the training that wrote this, from checkpoints
  bool finished = false;      ///< nothing is left to train: the last step, or a low enough held-out loss
  EarlySteps early;           ///< of all steps
  /// Of servers since the begin, where workers do not wait for each other (parallel/servers): their state follows.
  std::vector<ServerAct> acts = {};
  bool operator==(TrainingProgress const&) const = default;
};

struct CheckpointManifest {
  TrainingProgress progress;
  TrainingIdentity identity;
  std::string written_by; ///< version and commit of the program, for people
  GptConfig model;
  std::vector<CheckpointGroup> groups;
  Index vectors = 1; ///< of every part
  std::vector<CheckpointFile> files;
  bool operator==(CheckpointManifest const&) const = default;
};

/// Version of the text's form. A program reads only its own version.
inline constexpr int checkpoint_version = 5;

std::string to_text(CheckpointManifest const& manifest);
/// \throws InputError saying what is wrong with the text: another version, damaged, files that do not hold every
///         element of the model exactly once
CheckpointManifest read_manifest(std::string const& text);
/// Checks the size of a text before it is read. \throws InputError if no manifest is that large
void require_manifest_size(std::uintmax_t bytes);

/// A file's entry as text, for ranks to send each other.
std::string to_text(CheckpointFile const& file);
CheckpointFile read_checkpoint_file(std::string const& text);

} // namespace trainstone
