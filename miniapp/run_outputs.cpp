#include "run_outputs.hpp"

#include "core/atomic_file.hpp"
#include "core/host_copy.hpp"
#include "model/llmc/llmc_parameters.hpp"
#include "result/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <span>

namespace trainstone {

namespace {

/// Part of a group, as fp32 in host memory that is there already.
std::span<float const> copy_part(ExecutionSpace const& exec, ConstStoredVector part, std::span<float> out) {
  char const* const reason = "trainstone::run::save_model: it goes to a file";
  std::span<float> const values = out.first(static_cast<std::size_t>(part.size));
  if (part.storage == Storage::fp32)
    copy_to_host<float const>(exec, part.as<float>(), values, reason);
  else
    std::ranges::copy(copy_to_host(exec, part, reason), values.begin());
  return values;
}

} // namespace

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

void RunOutputs::write(Trainer& trainer, bool is_trained, std::string const& result_path) {
  try {
    if (m_recording) write_trace();
    if (!m_run->config().model_setup.save.empty() && is_trained) save_model(trainer);
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
  TraceText text(communicator.rank(), deck_hash(m_run->deck), recording.size(),
                 [&](std::size_t number) { return recording.event(number); });
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

void RunOutputs::save_model(Trainer& trainer) {
  Communicator& communicator = m_context->communicator;
  RunPlan const& plan = *m_run->plan;
  std::string const& path = m_run->config().model_setup.save;
  bool const narrow = plan.storage().values == Storage::bf16; // llm.c has no fp16 files
  std::optional<ParameterWriter> writer;                      // of the first rank
  collectively(communicator, [&] {
    if (communicator.rank() != 0) return;
    make_folder_of(path);
    writer.emplace(path, m_run->config().model, plan.table, narrow ? Storage::bf16 : Storage::fp32);
  });
  std::exception_ptr problem; // other ranks come to the end of the collectives, too
  trainer.engine().read_parameters([&](Index group, ConstStoredVector whole) {
    if (!writer || problem) return;
    try {
      for (Index first = 0; first < whole.size; first += saved_at_a_time)
        writer->write(
            group, first,
            copy_part(m_context->exec, whole.part(first, std::min(saved_at_a_time, whole.size - first)), m_part));
    } catch (...) {
      problem = std::current_exception();
    }
  });
  collectively(communicator, [&] {
    if (problem) std::rethrow_exception(problem);
    if (writer) writer->finish();
  });
  if (writer) fmt::print("model written to {}\n", path);
}

} // namespace trainstone
