#include "run_setup.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/buffers_start.hpp"
#include "core/address_space.hpp"
#include "core/atomic_file.hpp"
#include "core/plural.hpp"
#include "kernels/gemm/library_threads.hpp"
#include "model/llmc/llmc_files.hpp"
#include "model/llmc/llmc_parameters.hpp"
#include "report/output.hpp"
#include "result/released_curves.hpp"
#include "result/result.hpp"
#include "train/plan/program_proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace trainstone {

namespace {

/// The ranks on this rank's machine, and on its device.
void find_neighbours(PreparedRun& run, Rank rank, Placement const& placement) {
  auto const& [machines, devices, cores] = placement;
  auto const at = [](auto const& by_rank, Rank one) -> auto const& { return by_rank[static_cast<std::size_t>(one)]; };
  std::set<std::string> used;
  for (Rank other = 0; other < std::ssize(devices); ++other) {
    auto const machine = static_cast<std::size_t>(at(machines.node_of_rank, other));
    run.places.push_back({machines.host_names.at(machine), at(cores, other), at(devices, other)});
    if (at(machines.node_of_rank, other) != at(machines.node_of_rank, rank)) continue;
    run.neighbours.push_back(other);
    if (at(devices, other) == at(devices, rank)) run.sharers.push_back(other);
    if (!at(devices, other).empty()) used.insert(at(devices, other));
  }
  run.devices_per_node = static_cast<int>(used.size());
}

/// \param[in] where  the memory is that so many ranks share
void require_room(PreparedRun const& run, char const* where, std::size_t ranks, std::uint64_t needed,
                  std::uint64_t present) {
  if (needed <= present) return;
  std::string items;
  for (MemoryCategory category : memory_categories)
    items += fmt::format("\n  {:<12} {}", to_string(category), mebibytes(run.plan->memory_bytes()[category]));
  throw Error(fmt::format("does not fit: {} rank{} {} need{} {} and it has {}; per rank:{}", ranks,
                          ranks == 1 ? "" : "s", where, ranks == 1 ? "s" : "", mebibytes(needed), mebibytes(present),
                          items),
              ExitCode::does_not_fit);
}

/// A limit of the process' address space (ulimit -v) counts what is mapped, libraries included.
void require_address_space(PreparedRun const& run, std::uint64_t of_host) {
  if (std::optional<std::uint64_t> const left = address_space_left())
    require_room(run, "on this process", 1, of_host, *left);
}

/// What the command line gives to the kernels of a rank.
void require_given_memory(PreparedRun const& run, std::optional<std::uint64_t> const& given) {
  if (given) require_room(run, "under --device-mem", 1, run.plan->kernel_memory(), *given);
}

/// All ranks of a machine share its memory, also where they are taken to sit on several nodes, and those on a device
/// the device's. Pinned memory, and what is kept for files, is always the machine's.
void require_memory(PreparedRun const& run) {
  bool const on_devices = run.devices_per_node > 0;
  std::uint64_t of_machine = 0, of_device = 0;
  for (Rank const rank : run.neighbours) {
    RunPlan const plan = plan_run(run.resolved, rank);
    std::uint64_t const total = plan.memory_bytes().total(), of_host = plan.pinned_bytes + plan.host_bytes;
    of_machine += on_devices ? of_host : total;
    if (on_devices && std::ranges::count(run.sharers, rank) > 0) of_device += total - of_host;
  }
  require_address_space(run,
                        on_devices ? run.plan->pinned_bytes + run.plan->host_bytes : run.plan->memory_bytes().total());
  require_room(run, "on this device", run.sharers.size(), of_device, current_device().memory_bytes);
  require_room(run, "on this machine", run.neighbours.size(), of_machine, describe_machine().memory_bytes);
}

/// Every bucket has messages prepared, and a tag.
void require_few_buckets(PreparedRun const& run) {
  constexpr Index most = 4096;
  Index const buckets = run.plan->parallel.reductions.buckets.buckets();
  if (buckets <= most) return;
  auto const gradients = static_cast<double>(run.plan->table.size()) *
                         static_cast<double>(bytes_per_value(run.plan->parallel.reductions.storage));
  bool const is_slice = run.config().parallel.server_slice_bytes > 0 && run.plan->parallel.by_priority();
  char const* const key = is_slice ? "server.slice" : "parallel.bucket";
  fail_at(run.deck, key,
          fmt::format("{} the gradients into {} buckets, more than {}; nearest legal value: {} = \"{:.0f} KiB\"",
                      is_slice ? "server.slice cuts" : "parallel.bucket and parallel.first_bucket cut", buckets, most,
                      key, std::ceil(2 * gradients / most / 1024)));
}

/// "layers 2 instead of 1, vocab 50257 instead of 256"; empty if both are the same.
std::string differences(GptConfig const& found, GptConfig const& wanted) {
  using Member = std::pair<char const*, std::int64_t GptConfig::*>;
  std::string text;
  for (auto const& [name, member] : {Member{"layers", &GptConfig::layers}, Member{"heads", &GptConfig::heads},
                                     Member{"channels", &GptConfig::channels}, Member{"context", &GptConfig::context},
                                     Member{"vocab", &GptConfig::vocab}})
    if (found.*member != wanted.*member)
      text += fmt::format("{}{} {} instead of {}", text.empty() ? "" : ", ", name, found.*member, wanted.*member);
  return text;
}

void check_model_to_load(PreparedRun const& run) {
  std::string const& path = run.config().model_setup.load;
  if (path.empty()) return;
  std::string const problem = differences(config_of(LlmcModelReader(path).shape()), run.config().model);
  if (!problem.empty())
    fail_at(run.deck, "model.load", fmt::format("{} holds another model than the deck: {}", path, problem));
}

/// What is written when the training is over must not fail then. Returns the hold on the output folder.
FolderLock check_output(PreparedRun const& run, RunOptions const& options) {
  if (!run.config().model_setup.save.empty()) require_writable(run.config().model_setup.save);
  if (!run.config().trace.file.empty()) require_writable(run.config().trace.file);
  if (CheckpointConfig const& config = run.config().checkpoint; config.writes()) require_writable(config.folder + "/x");
  if (options.record_golden) require_writable(golden_path(run.deck.path));
  return prepare_output_folder(options.common.output_folder); // last: it makes the folder
}

/// What the losses are going to be compared with.
void find_golden_of(PreparedRun& run, bool records) {
  run.golden_key = golden_key(run.deck, run.resolved.topology.ranks());
  if (records) return;        // a curve that is about to be replaced is no reference
  if (run.one_worker) return; // losses follow from the order of pushes: verify --replay takes the place of a curve
  std::string const path = golden_path(run.deck.path);
  GoldenEntry golden = find_golden(path, run.golden_key);
  run.reference_key = run.golden_key;
  run.golden_digest = golden.digest;
  if (!golden.curve && is_released(golden.digest)) { // the bounds of bf16 were tried with these files alone
    auto const in_fp32 = golden_key_in_fp32(run.deck, run.resolved.topology.ranks());
    if (in_fp32) golden.curve = find_golden_curve(path, *in_fp32);
    if (golden.curve) run.reference_key = *in_fp32;
  }
  run.golden = std::move(golden.curve);
  if (!run.golden) run.first_step = std::move(golden.first_step);
  TRAINSTONE_REQUIRE_INPUT(!run.first_step || run.first_step->positions <= run.config().data.sequence,
                           "{}: the first step {} is of {} positions, more than data.sequence = {}", path,
                           run.golden_key, run.first_step->positions, run.config().data.sequence);
  TRAINSTONE_REQUIRE_INPUT(!run.first_step || !run.first_step->update ||
                               run.first_step->positions >= run.config().batch.global,
                           "{}: the update of first step {} is of {} positions, fewer than batch.global = {}", path,
                           run.golden_key, run.first_step->positions, run.config().batch.global);
}

} // namespace

PreparedRun plan_and_check(RunOptions const& options, Deck const& deck, ChosenRun const& chosen,
                           Placement const& placement, Rank rank) {
  bool const first = rank == 0;
  PreparedRun run;
  run.deck = deck;
  run.resolved = chosen.run;
  run.chosen = chosen.collectives;
  run.notes = chosen.notes;
  run.rank = rank;
  bool const apart = is_asynchronous(run.config().parallel);
  if (apart) run.one_worker = with_one_worker(run.resolved, worker_of(run.resolved, rank));
  run.plan = std::make_unique<RunPlan>(apart ? plan_with_servers(run.resolved, worker_of(run.resolved, rank), rank)
                                             : plan_run(run.resolved, rank));
  find_neighbours(run, rank, placement);
  require_given_memory(run, options.device_memory);
  require_memory(run);
  require_few_buckets(run);
  if (first) prove_programs(run.planned()); // of all ranks
  check_model_to_load(run);
  run.data = std::make_unique<TrainingData>(run.config(), first ? ScanTokens::yes : ScanTokens::no);
  measured_window(run.deck, run.data->steps()); // refuses a window that does not fit into the steps
  TRAINSTONE_REQUIRE_INPUT(!options.max_time || run.config().checkpoint.writes(),
                           "--max-time stops a run with a checkpoint: give checkpoint.dir");
  TRAINSTONE_REQUIRE_INPUT(!apart || !options.record_golden,
                           "--record-golden: losses of workers that do not wait for each other are no reference");
  TRAINSTONE_REQUIRE_INPUT(!has_priorities(run.config().parallel) || !options.record_golden,
                           "--record-golden: a curve needs the norms of gradients, which server.schedule \"priority\" "
                           "does not compute; legal value: fifo");
  find_golden_of(run, options.record_golden);
  if (first) run.output = check_output(run, options);
  return run;
}

Products PreparedRun::products() const {
  bool const exact = plan->storage().values == Storage::fp32 && !rounds_fp32(plan->gemm.usual());
  return exact ? Products::exact : Products::rounded;
}

std::string shared_processors(PreparedRun const& run, ExecutionSpace const& exec) {
  if (run.devices_per_node > 0)
    return run.sharers.size() > 1 ? fmt::format("{} ranks share a device", run.sharers.size()) : "";
  int const of_rank = std::max(exec.concurrency(), library_threads(run.plan->gemm));
  std::int64_t const threads = std::ssize(run.neighbours) * of_rank;
  std::vector<RankPlace> places;
  for (Rank const rank : run.neighbours) places.push_back(run.places[static_cast<std::size_t>(rank)]);
  std::int64_t const cores = count_cores(places);
  return threads > cores
             ? fmt::format("{} threads of all ranks on this machine share {}", threads, plural(cores, "core"))
             : "";
}

std::string any_shared_processors(PreparedRun const& run, RankContext const& context) {
  for (std::string const& sharing : all_gather_texts(context.communicator, shared_processors(run, context.exec)))
    if (!sharing.empty()) return sharing;
  return "";
}

void require_same_run(PreparedRun const& run, Communicator const& communicator) {
  std::string mine =
      fmt::format("deck {}, {} steps, {} training and {} held-out samples, golden file {}", deck_hash(run.deck),
                  run.data->steps(), run.data->training_samples(), run.data->validation_samples(),
                  run.golden_digest.empty() ? "none" : run.golden_digest);
  for (AlgorithmKey const& key : algorithm_keys)
    if (std::string const& chosen = run.config().comm.*key.member; chosen != run.deck.config.comm.*key.member)
      mine += fmt::format(", {} {}", key.name, chosen);
  std::vector<std::string> const all = all_gather_texts(communicator, mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw CollectiveError(
          fmt::format("rank {} would run something else than rank 0: {}; rank 0: {}. Do all ranks see the "
                      "same files and the same TRAINSTONE_SET?",
                      rank, all[rank], all[0]),
          ExitCode::usage);
}

} // namespace trainstone
