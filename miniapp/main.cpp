// trainstone: command line, start and end of MPI and Kokkos, and what becomes of errors.

#include "comm/execution/neighbour_watch.hpp"
#include "commands.hpp"
#include "commbench.hpp"
#include "deck/size_argument.hpp"
#include "explain.hpp"
#include "kernels/gemm/library_threads.hpp"
#include "matmul.hpp"

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace trainstone {

std::string kokkos_description() {
  int const version = KOKKOS_VERSION;
  return fmt::format("{}.{}.{} {}", version / 10000, version / 100 % 100, version % 100, ExecutionSpace::name());
}

namespace {

struct CommandLine {
  RunOptions run;
  VerifyOptions verify;
  FirstStepOptions first_step;
  EstimateOptions estimate;
  ExportOptions exported;
  ReportOptions report;
  CommbenchArguments commbench;
  CalibrateArguments calibrate;
  ExplainArguments explain;
  MatmulArguments matmul;
  bool help_deck = false;
  bool print_deck = false;
};

void add_common(CLI::App& command, CommonOptions& options, bool deck_required) {
  CLI::Option* const deck = command.add_option("DECK", options.deck.path, "input deck (TOML)");
  if (deck_required) deck->required();
  command.add_option("--set", options.deck.overrides, "override a key: section.key=value")
      ->take_all()
      ->allow_extra_args(false);
}

/// Bytes of "80GiB", "1.5 TB", "64K", "80e9".
void add_size(CLI::App& command, std::string const& name, std::optional<std::uint64_t>& target,
              std::string const& help) {
  constexpr std::uint64_t most = 1000000000000000000; // of doubles all whole numbers below can be cast
  command
      .add_option_function<std::string>(
          name, [&target](std::string const& text) { target = read_size_argument(text, most); }, help)
      ->check(CLI::Validator(
          [](std::string const& text) {
            return read_size_argument(text, most) ? "" : fmt::format("{} is {}", text, size_argument_problem(most));
          },
          "SIZE"));
}

void describe_first_step(CLI::App& verify, CommandLine& line, std::vector<CLI::Option*> const& others) {
  CLI::Option* const deck = verify.add_option("--first-step", line.first_step.common.deck.path,
                                              "DECK: compute the loss before its first update, in float64 and without "
                                              "MPI, and record it as golden first step, or "
                                              "compare it with a recorded one");
  for (CLI::Option* const other : others) deck->excludes(other);
  verify
      .add_option("--positions", line.first_step.positions,
                  "compute this number of first positions of the first sample; default all")
      ->check(CLI::PositiveNumber)
      ->needs(deck);
  verify.add_option("--threads", line.first_step.threads, "threads that compute the loss; default one per core")
      ->check(CLI::Range(1, 4096))
      ->needs(deck);
}

void describe_run(CLI::App& app, CommandLine& line) {
  CLI::App* const run = app.add_subcommand("run", "train, verify, print the figure of merit, write result.json");
  add_common(*run, line.run.common, true);
  run->add_option("--out", line.run.common.output_folder, "folder of result.json")->capture_default_str()->take_last();
  run->add_flag("--record-golden", line.run.record_golden, "record this run as the golden curve of the deck");
  run->add_option_function<std::string>(
         "--max-time", [&line](std::string const& text) { line.run.max_time = read_time_argument(text); },
         "stop after the first step that ends later than this, e.g. 55m, with a checkpoint: exit 75")
      ->check(CLI::Validator(
          [](std::string const& text) {
            return read_time_argument(text) ? "" : fmt::format("{} is no time above 0, like 90s, 55m or 2h", text);
          },
          "TIME"));
  add_size(*run, "--device-mem", line.run.device_memory,
           "memory per rank, e.g. 80GiB: where a rank needs more, nothing is allocated: exit 69");
  run->add_flag("--print-deck", line.print_deck, "print the resolved deck with the origin of each value and exit");
}

void describe_sweep_and_advice(CLI::App& estimate, EstimateOptions& options) {
  CLI::Option* const sweep = estimate.add_option(
      "--sweep", options.sweep,
      "ranks=FIRST..LAST: a row for every number of ranks, doubled: memory, traffic, predicted step and efficiency; "
      "micro-batch and accumulation stay, and --nodes is that of the first row");
  estimate.add_flag("--strong", options.strong, "with --sweep: batch.global stays")->needs(sweep);
  CLI::Option* const advise = estimate.add_flag(
      "--advise", options.advise,
      "which mesh, schedule, strategy and recomputation is the fastest that fits on --ranks N; with --device-mem also "
      "the taught rule; --nodes and --machine as above; exit 69 if nothing fits");
  advise->excludes(sweep);
  estimate.add_option("--top", options.top, "with --advise: ways that are printed; default 10")->needs(advise);
  CLI::Option* const check =
      estimate
          .add_option("--check", options.check,
                      "with --advise: run this number of the ways here, spread over the list, and compare the orders; "
                      "exit 65 if Kendall's tau is below 0.7")
          ->check(CLI::Range(2, 1000))
          ->needs(advise);
  estimate.add_option("--launcher", options.launcher, "with --check: starts the runs; default mpiexec")->needs(check);
}

void describe_estimate(CLI::App& app, CommandLine& line) {
  CLI::App* const estimate =
      app.add_subcommand("estimate", "predict memory, messages and FLOPs of a run without running it");
  add_common(*estimate, line.estimate.common, false);
  estimate
      ->add_option("--ranks", line.estimate.ranks,
                   "number of ranks; default 1, with --lecture 8, with --lecture matmul 64")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  add_size(*estimate, "--device-mem", line.estimate.device_memory,
           "memory per rank, e.g. 80GiB: the estimate ends with FITS or DOES NOT FIT");
  estimate->add_option(
      "--lecture", line.estimate.lecture,
      fmt::format("{}: print figures as they are taught beside the exact ones; needs no deck", lecture_names(", ")));
  add_size(*estimate, "--size", line.estimate.size, "with --lecture: data per rank, e.g. 1MiB");
  estimate->add_option("--stages", line.estimate.stages,
                       "with --lecture pipeline: number of stages; default 3, as on the slides");
  estimate->add_option("--micro-batches", line.estimate.micro_batches,
                       "with --lecture pipeline: number of micro-batches; default 1, 2 and 3, as on the slides");
  estimate->add_option("--machine", line.estimate.machine_file,
                       "peaks.json of calibrate: predict the time of a step, or price the collectives of the lecture");
  estimate->add_option("--nodes", line.estimate.nodes, "number of nodes; ranks sit on them in blocks; default 1")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  estimate
      ->add_option("--peaks", line.estimate.peaks,
                   "TFLOP/s of products and GB/s of memory: list the least time of every kernel of a step")
      ->expected(2);
  estimate->add_option("--json", line.estimate.json_file, "write the estimate, sweep or advice to this file");
  describe_sweep_and_advice(*estimate, line.estimate);
}

void describe_verify(CLI::App& app, CommandLine& line) {
  CLI::App* const verify = app.add_subcommand(
      "verify",
      "compare all strategies with each other, compare the program with a reference of an independent program, "
      "compute the first loss of a deck, or repeat a run whose workers did not wait for each other");
  verify
      ->add_option(
          "--set", line.verify.common.deck.overrides,
          "override a key: any key with --first-step; keys of kernels, parallel and comm with a reference; with "
          "--matrix keys of kernels and memory, model.attention, model.dropout, parallel.tensor_blocks and "
          "comm.buffers")
      ->take_all()
      ->allow_extra_args(false);
  CLI::Option* const model = verify->add_option("--reference-model", line.verify.files.model, "llm.c model file, fp32");
  CLI::Option* const state =
      verify->add_option("--reference-state", line.verify.files.state, "llm.c debug state of that model");
  model->needs(state);
  state->needs(model);
  verify->add_option("--reference-losses", line.verify.files.losses, "losses and norms of training steps (JSON)")
      ->needs(model);
  CLI::Option* const matrix = verify->add_flag(
      "--matrix", line.verify.matrix,
      "train a small model in ordered mode under every strategy and compare the bits; verify without any "
      "option does this with --quick");
  matrix->excludes(model);
  verify
      ->add_flag(
          "--mesh", line.verify.mesh,
          "the matrix of stages, schedules and strategies of pipelines; with --set parallel.tensor_blocks=B also of "
          "2, 4 ... tensor ranks, up to B")
      ->needs(matrix);
  verify->add_flag("--quick", line.verify.quick, "only some configurations of the matrix")->needs(matrix);
  CLI::Option* const replay = verify->add_option(
      "--replay", line.verify.replay,
      "result of a run whose workers did not wait for each other: repeat it on one rank and compare the bits");
  replay->excludes(model)->excludes(matrix);
  describe_first_step(*verify, line, {model, matrix, replay});
  verify->callback([model, matrix, &line] {
    line.verify.matrix = model->count() == 0;
    if (matrix->count() == 0) line.verify.quick = true;
  });
}

void describe_export_and_report(CLI::App& app, CommandLine& line) {
  CLI::App* const exported = app.add_subcommand("export", "write the model in a checkpoint as an llm.c file, in fp32");
  exported->add_option("CHECKPOINT", line.exported.checkpoint, "folder of the checkpoint, e.g. kept/step-00000100")
      ->required();
  exported->add_option("FILE", line.exported.file, "model file to write")->required();

  CLI::App* const report =
      app.add_subcommand("report", "show results as Markdown, as one HTML page, and as SVG pictures");
  report
      ->add_option("PATH", line.report.paths,
                   "result.json, a folder with one, a file of commbench, matmul or --sweep --json, or a study")
      ->required();
  report->add_option("--out", line.report.output_folder, "folder to write into")->capture_default_str();
  report->add_option("--machine", line.report.machine_file,
                     "peaks.json of calibrate --deck: predict the step of each run of that deck, and draw the step of "
                     "the run's trace (trace.file) below it");
  report->add_option("--golden", line.report.golden, "golden curves to show beside losses: inputs/golden/NAME.json");
}

void describe_options(CLI::App& app, CommandLine& line) {
  app.set_version_flag("--version", fmt::format("trainstone {}", TRAINSTONE_VERSION));
  app.add_flag("--help-deck", line.help_deck, "list every key of a deck and exit");
  app.require_subcommand(0, 1);
  app.failure_message([](CLI::App const*, CLI::Error const& problem) {
    return fmt::format("trainstone: {}; --help lists commands and options\n", problem.what());
  });
  app.footer(
      "Kokkos' own --kokkos-* flags pass through.\n"
      "Exit codes: 0 valid, unreferenced or emulated, 64 wrong deck, file or command line, 65 a check failed,\n"
      "69 does not fit into memory, or devices share none, 70 internal error, non-finite loss or a killed rank,\n"
      "75 stopped with a checkpoint: start the same command again.");

  describe_run(app, line);
  describe_estimate(app, line);
  describe_verify(app, line);
  describe_export_and_report(app, line);
  describe_commbench(
      *app.add_subcommand("commbench", "measure every collective by every algorithm, ours and libraries'"),
      line.commbench);
  describe_matmul(*app.add_subcommand("matmul", "multiply two matrices on all ranks, in every way to distribute them"),
                  line.matmul);
  describe_calibrate(
      *app.add_subcommand("calibrate", "measure messages, sums, memory and the parts of a deck, and write peaks.json"),
      line.calibrate);
  describe_explain(*app.add_subcommand(
                       "explain",
                       "show what every rank holds after every round of a collective or in a training step, what the "
                       "stages of a pipeline do, what tensor ranks share, or who has which block of a product"),
                   line.explain);
}

/// Prints the error where one is wanted and ends in order (the error is every rank's) or by force (it is ours alone).
int handle(Error const& error, MpiEnvironment const& mpi) {
  bool const every_rank = dynamic_cast<CollectiveError const*>(&error) != nullptr || mpi.world_size() == 1;
  if (!every_rank || mpi.world_rank() == 0) {
    std::fflush(stdout);
    if (every_rank)
      fmt::print(stderr, "trainstone: {}\n", error.what());
    else
      fmt::print(stderr, "trainstone: rank {}: {}\n", mpi.world_rank(), error.what());
  }
  if (!every_rank) mpi.abort(static_cast<int>(error.code()));
  return static_cast<int>(error.code());
}

int run_on_ranks(CLI::App const& app, CommandLine const& line, MpiEnvironment const& mpi) {
  try {
    Communicator world = Communicator::world();
    NeighbourWatch const watch(world);
    RankContext context{mpi, world, ExecutionSpace()};
    if (app.got_subcommand("verify")) return verify(line.verify, context);
    if (app.got_subcommand("commbench")) return commbench(line.commbench, context);
    if (app.got_subcommand("calibrate")) return calibrate(line.calibrate, context);
    if (app.got_subcommand("matmul")) return matmul(line.matmul, context);
    return run(line.run, context);
  } catch (Error const& error) {
    return handle(error, mpi);
  } catch (std::exception const& error) {
    return handle(Error(error.what()), mpi);
  }
}

int run_alone(CLI::App const& app, CommandLine const& line) {
  try {
    if (line.help_deck) {
      fmt::print("{}", help_deck());
      return 0;
    }
    if (line.print_deck) {
      fmt::print("{}", print_deck(read_deck(line.run.common.deck)));
      return 0;
    }
    if (app.got_subcommand("estimate")) return estimate(line.estimate);
    if (app.got_subcommand("verify")) {
      FirstStepOptions options = line.first_step; // --set and TRAINSTONE_SET are the command's
      options.common.deck.overrides = line.verify.common.deck.overrides;
      options.common.deck.environment = line.verify.common.deck.environment;
      return verify_first_step(options);
    }
    if (app.got_subcommand("export")) return export_checkpoint(line.exported);
    if (app.got_subcommand("report")) return report(line.report);
    if (app.got_subcommand("commbench")) return simulate_commbench(check_simulation(line.commbench));
    if (app.got_subcommand("explain")) return explain(line.explain);
    fmt::print("{}", app.help());
    return static_cast<int>(ExitCode::usage);
  } catch (Error const& error) {
    fmt::print(stderr, "trainstone: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (std::exception const& error) {
    fmt::print(stderr, "trainstone: {}\n", error.what());
    return static_cast<int>(ExitCode::internal);
  }
}

/// Whether a launcher started this process as another rank than the first, where MPI is not there to ask.
bool launched_as_other_rank() {
  for (char const* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (char const* const rank = std::getenv(name)) return std::string_view(rank) != "0";
  return false;
}

/// Whether the user, or ctest, tells Kokkos which devices to use.
bool devices_are_chosen(int argc, char** argv) {
  for (char const* name : {"KOKKOS_DEVICE_ID", "KOKKOS_MAP_DEVICE_ID_BY", "CTEST_RESOURCE_GROUP_COUNT"})
    if (std::getenv(name)) return true;
  return std::any_of(argv, argv + argc, [](std::string_view argument) {
    return argument.starts_with("--kokkos-device-id") || argument.starts_with("--kokkos-map-device-id-by");
  });
}

/// Ranks of a node take its devices in turn, if nobody has chosen otherwise.
void choose_device(int argc, char** argv) {
  if (devices() == 0) return;
  require_usable_device_memory();
  if (devices_are_chosen(argc, argv)) return;
  Communicator const world = Communicator::world();
  Rank const rank = world.rank();
  auto const& node_of = world.nodes().node_of_rank;
  auto const local = std::count(node_of.begin(), node_of.begin() + rank, node_of[static_cast<std::size_t>(rank)]);
  setenv("KOKKOS_DEVICE_ID", std::to_string(local % devices()).c_str(), 1);
}

void read_environment(CommandLine& line) {
  char const* const overrides = std::getenv("TRAINSTONE_SET");
  if (!overrides) return;
  for (CommonOptions* options : {&line.run.common, &line.verify.common, &line.estimate.common})
    options->deck.environment = overrides;
  line.calibrate.deck.environment = overrides;
  line.explain.deck.environment = overrides;
}

} // namespace
} // namespace trainstone

int main(int argc, char** argv) {
  using namespace trainstone;
  CommandLine line;
  CLI::App app("Trainstone trains GPT-style models and reports a verified rate.", "trainstone");
  describe_options(app, line);
  std::vector<std::string> arguments; // CLI11 takes them in reverse order
  for (int i = argc - 1; i > 0; --i)
    if (!std::string(argv[i]).starts_with("--kokkos-")) arguments.emplace_back(argv[i]);
  try {
    app.parse(arguments);
  } catch (CLI::ParseError const& problem) {
    bool const is_error = problem.get_exit_code() != 0; // --help and --version arrive here too
    if (!launched_as_other_rank()) app.exit(problem);
    return is_error ? static_cast<int>(ExitCode::usage) : 0;
  }
  read_environment(line);
  // also where nothing is computed: what libraries want as scratch may depend on their threads
  match_library_threads_to_kernels();
  bool const needs_ranks =
      !line.help_deck && !line.print_deck &&
      (app.got_subcommand("run") || (app.got_subcommand("verify") && line.first_step.common.deck.path.empty()) ||
       (app.got_subcommand("commbench") && line.commbench.simulate.empty()) || app.got_subcommand("calibrate") ||
       app.got_subcommand("matmul"));
  if (!needs_ranks) return launched_as_other_rank() ? 0 : run_alone(app, line);

  // the run itself says when threads share cores: once, and not on every rank as Kokkos does
  setenv("KOKKOS_DISABLE_WARNINGS", "true", 0);
  MpiEnvironment const mpi(argc, argv);
  try {
    choose_device(argc, argv);
  } catch (Error const& error) {
    return handle(error, mpi);
  }
  Kokkos::ScopeGuard const kokkos(argc, argv);
  return run_on_ranks(app, line, mpi);
}
