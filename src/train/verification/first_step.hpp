#pragma once

// What is known of a training before it begins: its first loss, and the first update, which is one step of the trainer
// on a batch whose gradient is known. Neither leaves anything behind in the trainer.

#include "core/index.hpp"
#include "train/early_steps.hpp"
#include "train/trainer.hpp"

namespace trainstone {

/// Mean loss of the first positions of the first step's first sample, with the parameters as they are. Every rank runs
/// the micro-batch that begins with it, forward only, without dropout. The same on all stages. Collective; waits.
/// \param[in] positions  1 to the sequence's
double first_sample_loss(Trainer& trainer, Index positions);

struct FirstUpdateOutcome {
  double loss = 0; ///< before the update
  FirstUpdate update;
};

/// One update, and back to where the training began. Comes before any step and before resume(). The loss of the update
/// is the mean over the first positions of the first step's first sample. Its learning rate is the peak, without
/// warm-up. Nothing is dropped. Every sample of the global batch is that sample, and counts only some of these
/// positions (first_step_part()). So the gradient lacks something if a contribution is lost, and has too much if one
/// counts twice. Afterwards the parameters are the seed's and the moments 0. For parameters and products in fp32.
/// Collective; waits. It costs a step, first_sample_loss(), two times parameter_changes(), and what the engine sends at
/// the start.
/// \param[in] positions  at least batch.global, at most the sequence's
FirstUpdateOutcome first_update(Trainer& trainer, Index positions);

/// The positions of the first sample that sample `index` of the global batch counts in a first update: all samples
/// together count each of the positions once, and every sample some. \param[in] samples  at most `positions`
Range first_step_part(Index index, Index samples, Index positions);

} // namespace trainstone
