#include "run_checkpoints.hpp"

#include "comm/execution/control.hpp"
#include "git_version.hpp"
#include "report/output.hpp"
#include "run_result.hpp"
#include "run_servers.hpp"
#include "run_setup.hpp"
#include "stop_signals.hpp"
#include "train/checkpoint/folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <sstream>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

/// Collective: the first rank has scanned the files.
TrainingIdentity identity_of(PreparedRun const& run, Communicator const& communicator) {
  TrainingIdentity identity = keys_of_loss_curve(run.deck, communicator.size());
  identity.emplace_back("training samples", std::to_string(run.data->training_samples()));
  std::uint64_t const xxhash = all_gather_values(communicator, run.data->xxhash()).front();
  if (run.one_worker) identity.emplace_back("pushes between pauses", std::to_string(policy_of(run).pause_every));
  if (xxhash != 0) identity.emplace_back("hash of the training files", xxhash_text(xxhash));
  return identity;
}

/// What rank 0 lists. Collective.
std::vector<std::string> from_first_rank(Communicator const& communicator,
                                         std::function<std::vector<std::string>()> const& list) {
  std::string mine;
  collectively(communicator, [&] {
    if (communicator.rank() == 0)
      for (std::string const& name : list()) mine += name + "\n";
  });
  std::istringstream lines(all_gather_texts(communicator, mine).front());
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);) names.push_back(name);
  return names;
}

/// Whether a manifest is there and this training's.
bool is_own(fs::path const& checkpoint, TrainingIdentity const& identity) {
  try {
    StoredCheckpoint(checkpoint).require_identity(identity);
    return true;
  } catch (InputError const&) {
    return false;
  }
}

} // namespace

RunCheckpoints::RunCheckpoints(PreparedRun const& run, RankContext& context, std::optional<double> max_time)
    : m_config(run.config().checkpoint),
      m_model(run.config().model),
      m_context(&context),
      m_begin(run.begin),
      m_last(std::chrono::steady_clock::now()),
      m_max_time(max_time),
      m_identity(identity_of(run, context.communicator)) {
  Communicator const& communicator = context.communicator;
  collectively(communicator, [&] {
    if (m_config.writes() && communicator.rank() == 0) m_lock.emplace(m_config.folder, ".lock", "checkpoint.dir");
  });
  if (m_config.writes()) m_all = from_first_rank(communicator, [&] { return checkpoints_in(m_config.folder); });
  find_start(state_vectors(run.plan->parallel.layout));
  find_own();
  require_nothing_later();
  if (!m_start) return;
  m_info.resumed_from = m_start->path().string();
  m_info.resumed_step = start().step;
  m_info.restarts = start().restarts + 1;
}

void RunCheckpoints::find_start(Index vectors) {
  Communicator const& communicator = m_context->communicator;
  if (m_config.resume == "none" || (m_config.resume == "auto" && !m_config.writes())) return;
  if (m_config.resume != "auto") {
    m_start = verify_checkpoint(communicator, m_config.resume, m_identity, m_model, vectors);
    return;
  }
  for (std::string const& name : m_all) {
    try {
      m_start = verify_checkpoint(communicator, fs::path(m_config.folder) / name, m_identity, m_model, vectors);
      return;
    } catch (CollectiveError const& problem) {
      if (problem.code() != ExitCode::usage) throw; // the file system has a problem, not the checkpoint
      if (communicator.rank() == 0) fmt::print("note: not used: {}\n", problem.what());
      m_refused.push_back(name);
    }
  }
}

/// Others' checkpoints and those that were refused are left alone.
void RunCheckpoints::find_own() {
  if (!m_config.writes()) return;
  m_own = from_first_rank(m_context->communicator, [&] {
    std::vector<std::string> own = m_all;
    std::erase_if(own, [&](std::string const& name) {
      return std::ranges::count(m_refused, name) > 0 || !is_own(fs::path(m_config.folder) / name, m_identity);
    });
    return own;
  });
}

/// A run that begins before them would be followed by one that goes on from them.
void RunCheckpoints::require_nothing_later() const {
  if (m_config.resume == "auto" || m_own.empty()) return;
  if (std::int64_t const step = checkpoint_step(m_own.front()); step > start().step)
    throw CollectiveError(
        fmt::format("checkpoint.resume = \"{}\" begins after step {}, but checkpoint.dir {} has {} of "
                    "this training, from which the next run would go on: name another folder",
                    m_config.resume, start().step, m_config.folder, m_own.front()),
        ExitCode::usage);
}

TrainingProgress const& RunCheckpoints::start() const {
  static TrainingProgress const beginning;
  return m_start ? m_start->manifest().progress : beginning;
}

void RunCheckpoints::load(Trainer& trainer) {
  if (!m_start) return;
  read_checkpoint(m_context->exec, trainer.engine(), *m_start);
  trainer.resume({start().updates, start().loss_scaler});
  m_info.reads = reads_of_all(m_start->reads(), *m_context);
  if (m_context->communicator.rank() == 0)
    fmt::print("resumed after step {} from {}, restart {}\n", start().step, m_info.resumed_from, m_info.restarts);
}

Requests RunCheckpoints::ask() const {
  bool const clock = m_context->communicator.rank() == 0; // all clocks differ: one counts
  bool const time_is_up = clock && m_max_time && seconds_since(m_begin) >= *m_max_time;
  return {.stop = time_is_up || StopSignals::received(),
          .checkpoint = clock && m_config.writes() && m_config.every > 0 && seconds_since(m_last) >= m_config.every};
}

bool RunCheckpoints::writes_after(StepReport const& step) const {
  bool const by_steps = m_config.every_steps > 0 && step.step % m_config.every_steps == 0;
  return m_config.writes() && (by_steps || step.requests.checkpoint || step.requests.stop || step.step == step.steps);
}

void RunCheckpoints::write(std::int64_t step, Trainer& trainer, Steps const& steps, bool finished) {
  trainer.require_equal_replicas(step); // each writes a part of what they hold alike
  auto const [updates, loss_scaler] = trainer.state();
  note(write_checkpoint(m_context->exec, m_context->communicator, trainer.engine(),
                        about({step, updates, loss_scaler, steps.losses, m_info.restarts, finished, steps.early}),
                        m_config.folder));
}

void RunCheckpoints::write(std::int64_t step, AsynchronousTraining& training, std::vector<ServerRecord> const& record,
                           std::vector<double> const& losses, bool finished) {
  TrainingProgress progress;
  progress.step = step;
  progress.losses = losses;
  progress.restarts = m_info.restarts;
  progress.finished = finished;
  for (ServerRecord const& part : record) {
    progress.acts.insert(progress.acts.end(), part.acts.begin(), part.acts.end());
    progress.updates += std::ssize(part.pushes);
  }
  Communicator const& all = m_context->communicator;
  WrittenCheckpoint written;
  collectively(all, [&] {
    if (Communicator const* const writers = training.meet_whole_state())
      written =
          write_checkpoint(m_context->exec, *writers, training.trainer().engine(), about(progress), m_config.folder);
  });
  written.name = all_gather_texts(all, written.name).front();
  note(written);
}

CheckpointManifest RunCheckpoints::about(TrainingProgress progress) const {
  CheckpointManifest about;
  about.progress = std::move(progress);
  about.identity = m_identity;
  about.model = m_model;
  about.written_by = fmt::format("trainstone {} git {}{}", TRAINSTONE_VERSION, git_commit, git_dirty ? " dirty" : "");
  return about;
}

void RunCheckpoints::note(WrittenCheckpoint const& written) {
  m_own.insert(m_own.begin(), written.name);
  if (m_context->communicator.rank() == 0)
    for (std::string const& problem : remove_older_checkpoints(m_config.folder, m_own, m_config.keep))
      fmt::print("note: an older checkpoint stays: {}\n", problem);
  m_own.resize(std::min(m_own.size(), static_cast<std::size_t>(m_config.keep)));
  m_last = std::chrono::steady_clock::now();
  ++m_info.written;
  m_info.bytes += written.bytes;
  m_info.seconds += written.seconds;
  m_info.last = (fs::path(m_config.folder) / written.name).string();
}

} // namespace trainstone
