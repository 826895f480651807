#include "run_outputs.hpp"

#include "core/atomic_file.hpp"
#include "model/llmc/llmc_parameters.hpp"
#include "result/trace.hpp"
#include "train/checkpoint/collected_parameters.hpp"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <span>

namespace trainstone {

RunOutputs::RunOutputs(PreparedRun const& run, RankContext& context, MemoryLedger& ledger)
    : m_run(&run), m_context(&context) {
  bool const saves = !run.config().model_setup.save.empty() && context.communicator.rank() == 0;
  if (saves) m_part.resize(static_cast<std::size_t>(saved_at_a_time));
  std::uint64_t bytes = m_part.size() * sizeof(float);
  if (!run.config().trace.file.empty())
    bytes += Recording::bytes_of(static_cast<std::size_t>(run.config().trace.events));
  m_entry = LedgerEntry(ledger, MemoryCategory::buffers, bytes);
}

void RunOutputs::begin_trace() {
  if (m_run->config().trace.file.empty()) return;
  barrier(m_context->communicator);
  m_recording = std::make_unique<Recording>(static_cast<std::size_t>(m_run->config().trace.events));
}

void RunOutputs::end_trace() {
  if (m_recording) m_recording->end();
}

void RunOutputs::write(Trainer& trainer, Communicator const* holders, bool is_trained, std::string const& result_path) {
  try {
    if (m_recording) write_trace();
    if (!m_run->config().model_setup.save.empty() && is_trained) save_model(trainer, holders != nullptr);
  } catch (CollectiveError const& problem) {
    throw CollectiveError(fmt::format("{}; the result is in {}", problem.what(), result_path), ExitCode::internal);
  }
}

void RunOutputs::write_trace() {
  Communicator& communicator = m_context->communicator;
  std::string const& path = m_run->config().trace.file;
  Recording const& recording = *m_recording;
  std::optional<TraceFile> file;
  collectively(communicator, [&] {
    if (communicator.rank() != 0) return;
    make_folder_of(path);
    file.emplace(path);
  });
  PipelinePlan const& pipeline = m_run->plan->parallel.pipeline;
  Mesh const& mesh = m_run->plan->parallel.layout.mesh;
  std::string stage = pipeline.has_stages() ? fmt::format(", stage {}", pipeline.stage) : "";
  if (mesh.shares_layers()) stage += fmt::format(", tensor rank {}", communicator.rank() % mesh.sharers());
  TraceText text(communicator.rank(), fmt::format("rank {}{}", communicator.rank(), stage), deck_hash(m_run->deck),
                 recording.size(), [&](std::size_t number) { return recording.event(number); });
  collectively(communicator, [&] {
    stream_to_first(communicator, [&] { return text.next(); }, [&](std::string const& piece) { file->add(piece); });
    if (file) file->finish();
  });
  std::vector<std::uint64_t> const left_out = all_gather_values(communicator, recording.left_out());
  if (communicator.rank() != 0) return;
  fmt::print("trace written to {}\n", path);
  if (std::uint64_t const all = std::accumulate(left_out.begin(), left_out.end(), std::uint64_t{0}); all > 0)
    fmt::print(
        "note: the trace has the first {} events of a rank (trace.events): the last {} of all ranks are not in it\n",
        m_run->config().trace.events, all);
}

void RunOutputs::save_model(Trainer& trainer, bool holds) {
  Communicator& communicator = m_context->communicator;
  RunPlan const& plan = *m_run->plan;
  std::string const& path = m_run->config().model_setup.save;
  bool const narrow = plan.storage().values == Storage::bf16; // llm.c has no fp16 files
  std::optional<ParameterWriter> writer;                      // of the first rank
  collectively(communicator, [&] {
    if (communicator.rank() != 0) return;
    make_folder_of(path);
    GptConfig const& model = m_run->deck.config.model; // its table has the usual padding, on any tensor ranks
    writer.emplace(path, model, ParameterTable(model, 1), narrow ? Storage::bf16 : Storage::fp32);
  });
  collectively(communicator, [&] {
    if (!holds) return;
    collect_parameters(
        m_context->exec, trainer.engine(), m_part,
        [&](Index number, Index first, std::span<float const> values) { writer->write(number, first, values); });
    if (writer) writer->finish();
  });
  if (writer) fmt::print("model written to {}\n", path);
}

} // namespace trainstone
