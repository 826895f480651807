#pragma once

// A global batch that a trainer plays by its step program: what it is given, and what is found on the way. A value that
// lives as long as the step. What outlives a step is the trainer's.

#include "core/clock.hpp"
#include "model/gpt.hpp"
#include "parallel/engine/optimizer_update.hpp"
#include "train/data/batch_loader.hpp"
#include "train/events.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace trainstone {

struct PlayedStep {
  // given
  BatchSource const* source = nullptr;
  std::int64_t batch = 0; ///< number of the global batch in the source
  LossMode mode = LossMode::training;
  bool held_out = false;                    ///< of a validation: with its micro-batches
  std::int64_t step = 0;                    ///< from 1; 0: no step of the training, so nothing is dropped or injected
  std::optional<float> gradient_scale = {}; ///< what the loss of a token is multiplied with; none: the training's
  std::function<void(Part, StoredMatrix output)> after_forward = {}; ///< of every part on this rank; may be empty
  /// Changes losses and logits of some rows of a micro-batch of this rank, before their backward; may be empty.
  std::function<void(Index micro_batch, Range rows)> after_loss = {};
  std::function<void()> before_push = {};   ///< called before the first reduction of gradients; may be empty
  std::function<Requests()> ask = {};       ///< this rank's requests, which travel with the losses; may be empty
  std::optional<UpdateNumbers> update = {}; ///< given before the update is played

  // found
  std::vector<double> losses = {}; ///< of this rank's micro-batches: sums over tokens
  double total_loss = 0;           ///< of the global batch: sum over tokens
  double norm = 0;                 ///< of the gradient
  Requests requests = {};          ///< of all ranks
  double uncovered_seconds = 0;    ///< of reductions, after the last kernel of backward

  // while it is played
  bool backward_ends = false; ///< the last backward is enqueued, and no wait has come behind it
  std::optional<SteadyTime> backward_end = {};
};

} // namespace trainstone
