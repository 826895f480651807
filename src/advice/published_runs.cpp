#include "advice/published_runs.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <sstream>

namespace trainstone {

namespace {

constexpr std::int64_t sequence = 2048, vocabulary = 51200; // of all runs here

/// 8 A100 of 80 GB with NVLink of the third generation, and an adapter of 200 Gb/s for each, in a network that gives
/// all of them their bandwidth at once.
constexpr PublishedMachine selene{.name = "Selene: nodes of 8 A100 of 80 GB",
                                  .ranks_per_node = 8,
                                  .peak = 312e12,
                                  .memory = 2.039e12,
                                  .attained = 0.8,
                                  .inside = 300e9,
                                  .between = 25e9,
                                  .start_inside = 3e-6,
                                  .start_between = 5e-6};

constexpr std::string_view one_pass = "memory.recompute=full parallel.granularity=step",
                           chunked = "memory.recompute=full parallel.granularity=step "
                                     "parallel.pipeline_schedule=interleaved",
                           again = "memory.recompute=full",
                           again_chunked = "memory.recompute=full "
                                           "parallel.pipeline_schedule=interleaved",
                           saved = "memory.recompute=selective parallel.sequence=true",
                           saved_chunked = "memory.recompute=selective parallel.sequence=true "
                                           "parallel.pipeline_schedule=interleaved";

Publication megatron() {
  return {
      .name = "Megatron-LM",
      .title = "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM (SC21)",
      .table = "Table 1, weak scaling; micro-batches and chunks from the scripts that its authors published",
      .rate = PublishedRate::teraflops_with_recomputation,
      .machine = selene,
      .runs = {{"1.7B", 24, 24, 2304, 1, 1, 1, 32, 16, 512, again, {}, 137},
               {"3.6B", 30, 32, 3072, 2, 1, 1, 32, 16, 512, again, {}, 138},
               {"7.5B", 36, 32, 4096, 4, 1, 1, 32, 16, 512, again, {}, 142},
               {"18.4B", 40, 48, 6144, 8, 1, 1, 32, 8, 1024, again, {}, 135},
               {"39.1B", 48, 64, 8192, 8, 2, 1, 32, 4, 1536, one_pass, {}, 138},
               {"76.1B", 60, 80, 10240, 8, 4, 3, 32, 2, 1792, chunked, {}, 140},
               {"145.6B", 80, 96, 12288, 8, 8, 2, 24, 2, 2304, chunked, {}, 148},
               {"310.1B", 96, 128, 16384, 8, 16, 2, 15, 1, 2160, chunked, {}, 155},
               {"529.6B", 105, 128, 20480, 8, 35, 3, 9, 1, 2520, chunked, {}, 163},
               {"1008B", 128, 160, 25600, 8, 64, 1, 6, 1, 3072, one_pass, {}, 163}},
      .note =
          "The four smallest reduce gradients in buckets during the backward, the others after it, and their stages "
          "wait for\n  messages. A published pipeline sends 1/t of an activation from each tensor rank and gathers "
          "it in the node; here each\n  tensor rank sends all of it."};
}

Publication turing() {
  return {.name = "Megatron-Turing NLG",
          .title = "Using DeepSpeed and Megatron to Train Megatron-Turing NLG 530B (2022)",
          .table = "section 2.4: 280, 350 and 420 nodes",
          .rate = PublishedRate::teraflops_with_recomputation,
          .machine = selene,
          .runs = {{"530B", 105, 128, 20480, 8, 35, 1, 8, 1, 1920, one_pass, 60.1, 126},
                   {"530B", 105, 128, 20480, 8, 35, 1, 10, 1, 1920, one_pass, 50.2, 121},
                   {"530B", 105, 128, 20480, 8, 35, 1, 12, 1, 1920, one_pass, 44.4, 113}},
          .note = "The publication does not name its micro-batch; 1 is assumed."};
}

Publication recomputation() {
  return {.name = "Activation recomputation",
          .title = "Reducing Activation Recomputation in Large Transformer Models (MLSys 2023)",
          .table = "Tables 3 and 5: everything computed again, then selective with shared positions; last two rows: "
                   "abstract",
          .rate = PublishedRate::model_utilization,
          .machine = selene,
          .runs = {{"22B", 48, 64, 6144, 8, 1, 1, 1, 4, 4, again, 1.42, {}},
                   {"175B", 96, 96, 12288, 8, 8, 3, 1, 1, 64, again_chunked, 18.13, {}},
                   {"530B", 105, 128, 20480, 8, 35, 3, 1, 1, 280, again_chunked, 49.05, {}},
                   {"1T", 128, 160, 25600, 8, 64, 1, 1, 1, 512, again, 94.42, {}},
                   {"22B", 48, 64, 6144, 8, 1, 1, 1, 4, 4, saved, 1.10, 0.415},
                   {"175B", 96, 96, 12288, 8, 8, 3, 1, 1, 64, saved_chunked, 13.75, 0.514},
                   {"530B", 105, 128, 20480, 8, 35, 3, 1, 1, 280, saved_chunked, 37.83, 0.560},
                   {"1T", 128, 160, 25600, 8, 64, 1, 1, 1, 512, saved, 71.49, 0.563},
                   {"530B", 105, 128, 20480, 8, 35, 3, 8, 1, 2240, again_chunked, {}, 0.421},
                   {"530B", 105, 128, 20480, 8, 35, 3, 8, 1, 2240, saved_chunked, {}, 0.542}},
          .note = "Messages are hidden where the program can."};
}

} // namespace

std::string_view to_string(PublishedRate rate) {
  return rate == PublishedRate::teraflops_with_recomputation ? "TFLOP/s" : "MFU";
}

StepMachine PublishedMachine::model() const {
  MachineModel messages;
  messages.set_messages(Link::intra, {start_inside, 1 / inside});
  messages.set_messages(Link::inter, {start_between, 1 / between});
  return {.model = messages, .rates = {attained * peak, attained * memory}};
}

std::vector<std::string> PublishedRun::keys() const {
  std::vector<std::string> all{fmt::format("model.layers={}", layers),
                               fmt::format("model.heads={}", heads),
                               fmt::format("model.channels={}", channels),
                               fmt::format("model.context={}", sequence),
                               fmt::format("model.vocab={}", vocabulary),
                               fmt::format("batch.micro={}", micro),
                               fmt::format("batch.global={}", batch),
                               fmt::format("parallel.tensor={}", tensor),
                               fmt::format("parallel.pipeline={}", pipeline),
                               "model.dropout=0.1",
                               "model.dropout_masks=stored",
                               "data.source=synthetic",
                               "data.steps=1",
                               "precision.recipe=mixed18"};
  if (chunks > 1) all.push_back(fmt::format("parallel.pipeline_chunks={}", chunks));
  std::istringstream words{std::string(more)};
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

std::vector<Publication> const& publications() {
  static std::vector<Publication> const all{megatron(), turing(), recomputation()};
  return all;
}

double published_flops(PublishedRun const& run, PublishedRate rate) {
  bool const again = rate == PublishedRate::teraflops_with_recomputation;
  auto const l = static_cast<double>(run.layers), h = static_cast<double>(run.channels),
             s = static_cast<double>(sequence), v = static_cast<double>(vocabulary);
  double const of_layers = (again ? 96 : 72) * static_cast<double>(run.batch) * s * l * h * h;
  return of_layers * (1 + s / (6 * h) + v / ((again ? 16 : 12) * l * h));
}

double rate_of(PublishedRun const& run, Publication const& publication, double seconds) {
  double const of_card = published_flops(run, publication.rate) / (seconds * static_cast<double>(run.ranks()));
  return publication.rate == PublishedRate::model_utilization ? of_card / publication.machine.peak : of_card / 1e12;
}

double published_seconds(PublishedRun const& run, Publication const& publication) {
  if (run.seconds) return *run.seconds;
  TRAINSTONE_REQUIRE(run.rate, "{} has neither a time nor a rate", run.name);
  return rate_of(run, publication, 1) / *run.rate;
}

StepTime predict_published(PublishedRun const& run, PublishedMachine const& machine) {
  DeckOnRanks const asked{"", {"", run.keys(), ""}, run.ranks(), run.ranks() / machine.ranks_per_node};
  return price_step(planned_run(asked), machine.model());
}

// --- text

namespace {

std::string machine_text(PublishedMachine const& machine) {
  return fmt::format("  {}, {:.0f} TFLOP/s and {:.3f} TB/s, of which kernels reach {:.0f} % (assumed);\n"
                     "  inside a node {:.0f} GB/s and {:.0f} us, between nodes {:.0f} GB/s per card and {:.0f} us "
                     "(starts assumed); sums and copies hidden\n",
                     machine.name, machine.peak / 1e12, machine.memory / 1e12, 100 * machine.attained,
                     machine.inside / 1e9, 1e6 * machine.start_inside, machine.between / 1e9,
                     1e6 * machine.start_between);
}

std::string rate_text(PublishedRate unit, double rate) {
  return unit == PublishedRate::model_utilization ? fmt::format("{:.1f} %", 100 * rate) : fmt::format("{:.0f}", rate);
}

std::string row_text(PublishedRun const& run, Publication const& publication) {
  StepTime const predicted = predict_published(run, publication.machine);
  double const seconds = published_seconds(run, publication);
  std::string const published_rate = run.rate ? rate_text(publication.rate, *run.rate) : "-";
  double const tensor = predicted.tensor / predicted.step, data = predicted.data / predicted.step;
  return fmt::format("  {:<7} {:>5} {:>13} {:>6} {:>5} {:>5} {:>7.2f}{} {:>9.2f} {:>8.1f} % {:>9} {:>9} {:>5.0f} % "
                     "{:>6.0f} % {:>4.0f} %\n",
                     run.name, run.ranks(), fmt::format("{} x {} x {}", run.tensor, run.pipeline, run.data), run.chunks,
                     run.micro, run.batch, seconds, run.seconds ? ' ' : '*', predicted.step,
                     100 * (predicted.step / seconds - 1), published_rate,
                     rate_text(publication.rate, rate_of(run, publication, predicted.step)),
                     100 * predicted.bubble / predicted.step, 100 * tensor, 100 * data);
}

} // namespace

std::string publication_text(Publication const& publication) {
  constexpr auto line = "  {:<7} {:>5} {:>13} {:>6} {:>5} {:>5} {:>8} {:>9} {:>10} {:>9} {:>9}{}\n";
  std::string text =
      fmt::format("{}: published runs, not taught, beside what this program predicts\n  {}\n  {}\n{}", publication.name,
                  publication.title, publication.table, machine_text(publication.machine));
  std::string_view const rate = to_string(publication.rate);
  text += fmt::format(line, "", "", "tensor x", "", "", "", "step, s", "step, s", "", rate, rate, "");
  text += fmt::format(line, "model", "cards", "stages x data", "chunks", "micro", "batch", "publ.", "predicted",
                      "residual", "publ.", "predicted", " waiting   tensor   data");
  for (PublishedRun const& run : publication.runs) text += row_text(run, publication);
  return text + fmt::format("  {}\n\n", publication.note);
}

std::string published_text() {
  std::string text;
  int number = 0;
  for (Publication const& publication : publications())
    text += fmt::format("{}. {}", ++number, publication_text(publication));
  return text +
         "  Note: figures are as published, not as taught on slides. * the publication has no time; it is what its "
         "rate comes to.\n"
         "  Predicted is what this program plans for the same mesh, batch and recomputation (fp32 gradients, dropout "
         "0.1), by the\n"
         "  timeline of the step. Nothing is fitted to a row. Residual: predicted by published "
         "time, less 1. TFLOP/s count what is\n  computed again, MFU does not. Waiting (for other ranks, of a pipeline "
         "its bubble), tensor and data (messages that\n  nothing hides) are shares of the predicted step.\n";
}

} // namespace trainstone
