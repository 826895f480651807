#pragma once

// Trainings that others have published, as decks: the mesh, the batch and the machine as their tables state them, and
// what they measured. Owns these figures, and how each publication counts operations. Predicts with the code that plans
// every deck (advice/step_machine.hpp). Nothing is fitted: all runs of a publication have one machine.

#include "advice/step_machine.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// What a publication or its maker says of the machine, and what is assumed.
struct PublishedMachine {
  std::string_view name;
  std::int64_t ranks_per_node = 1;
  double peak = 0;         ///< FLOP/s of a card, products in 16 bits
  double memory = 0;       ///< bytes per second of a card
  double attained = 1;     ///< share of both that large kernels reach: assumed
  double inside = 0;       ///< bytes per second between cards of a node, each way
  double between = 0;      ///< bytes per second of a card to other nodes, each way
  double start_inside = 0; ///< seconds that a message takes at least: assumed
  double start_between = 0;

  /// Sums and copies are hidden behind messages.
  StepMachine model() const;
};

/// How a publication states speed: TFLOP/s of a card with what is computed again, or the share of the peak that the
/// model's own operations reach (MFU).
enum class PublishedRate { teraflops_with_recomputation, model_utilization };

std::string_view to_string(PublishedRate rate);

struct PublishedRun {
  std::string_view name;
  std::int64_t layers, heads, channels;
  std::int64_t tensor, pipeline, chunks, data;
  std::int64_t micro, batch;          ///< samples; `batch` over all ranks
  std::string_view more;              ///< more keys, separated by spaces
  std::optional<double> seconds = {}; ///< of a step, as published
  std::optional<double> rate = {};    ///< as published

  std::int64_t ranks() const { return tensor * pipeline * data; }
  /// That --set takes.
  std::vector<std::string> keys() const;
};

struct Publication {
  std::string_view name;         ///< short
  std::string_view title, table; ///< where the figures stand
  PublishedRate rate;
  PublishedMachine machine;
  std::vector<PublishedRun> runs;
  std::string_view note; ///< what the decks leave out
};

std::vector<Publication> const& publications();

/// Operations of a step as the publication counts them: of four passes with what is computed again, else of three.
double published_flops(PublishedRun const& run, PublishedRate rate);

/// The rate of a step that takes so long. \return in the publication's unit: TFLOP/s, or a share of 1
double rate_of(PublishedRun const& run, Publication const& publication, double seconds);

/// As published, or what the published rate comes to.
double published_seconds(PublishedRun const& run, Publication const& publication);

/// The step that this program predicts.
StepTime predict_published(PublishedRun const& run, PublishedMachine const& machine);

/// Published, predicted and residual of its runs.
std::string publication_text(Publication const& publication);

/// A table for each publication: published, predicted, residual.
std::string published_text();

} // namespace trainstone
