// trainstone verify --replay: repeats an asynchronous training with parameter servers on one rank, in the order that
// its result has noted, and compares the bits.

#include "commands.hpp"

#include "model/llmc/llmc_parameters.hpp"
#include "parallel/engine/parameter_hash.hpp"
#include "result/json_file.hpp"
#include "result/recorded_deck.hpp"
#include "result/result_file.hpp"
#include "train/data/training_data.hpp"
#include "train/repeated_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace trainstone {

namespace {

/// What a result tells of a training that can be repeated.
struct Recorded {
  ServersInfo servers;
  RunConfig config;
};

/// \param[in] given  the result, or the folder that has it
Recorded read_recorded(std::string const& given) {
  std::error_code ignored;
  std::string const path =
      std::filesystem::is_directory(given, ignored) ? (std::filesystem::path(given) / "result.json").string() : given;
  ResultFile const file = read_result(JsonFile::read(path, ": --replay needs the result of a run"));
  TRAINSTONE_REQUIRE_INPUT(
      file.result.servers,
      "{}: its workers waited for each other; --replay repeats runs of server.mode async and bounded", path);
  Deck deck = recorded_deck(file);
  deck.path.clear(); // files are relative to the working directory, as they were in the run
  Recorded recorded{*file.result.servers, resolve(deck, file.result.topology.ranks)};
  TRAINSTONE_REQUIRE_INPUT(recorded.config.kernels.gemm != gemm_measured,
                           "{}: kernels.gemm = \"measured\" chose who computes products; --replay needs a name", path);
  return recorded;
}

void load_model(ExecutionSpace const& exec, RunConfig const& config, RepeatedTraining& repeated) {
  if (config.model_setup.load.empty()) return;
  ShardedEngine& engine = repeated.trainer().engine();
  engine.set_parameters([&](Index group, Range share, Vector<float> values) {
    load_parameters(exec, config.model_setup.load, config.model, engine.table(), group, share, values);
  });
}

} // namespace

int verify_replay(VerifyOptions const& options, RankContext& context) {
  Communicator& alone = context.communicator;
  TRAINSTONE_REQUIRE_INPUT(alone.size() == 1, "--replay repeats a training on 1 rank, without mpiexec; there are {}",
                           alone.size());
  auto const [servers, config] = read_recorded(options.replay);
  TrainingData const data(config, ScanTokens::no);
  auto const workers = static_cast<Rank>(servers.workers.size());
  RepeatedTraining repeated(context.exec, alone, config, workers, data.batches(), data.steps());
  load_model(context.exec, config, repeated);
  for (ServerAct const& act : servers.acts) repeated.repeat(act);
  std::string const hash = fmt::format("{:016x}", parameter_hash(context.exec, repeated.trainer().engine()));
  auto const pushes = std::ranges::count(servers.acts, false, &ServerAct::answers);
  bool const passed = hash == servers.parameter_hash;
  fmt::print("{} pushes of {} workers, in the order of {}: hash of all parameters {}, there {}\n", pushes, workers,
             options.replay, hash, servers.parameter_hash);
  fmt::print("VERIFICATION {}\n", passed ? "PASSED" : "FAILED");
  return static_cast<int>(passed ? ExitCode::valid : ExitCode::verification_failed);
}

} // namespace trainstone
