#include "deck/deck.hpp"

#include "deck/benchmark_class.hpp"
#include "deck/deck_checks.hpp"
#include "deck/schema.hpp"
#include "deck/toml_reader.hpp"
#include "deck/unread_keys.hpp"
#include "parallel/plan/mesh.hpp"
#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/pipeline_problems.hpp"
#include "parallel/plan/strategies.hpp"
#include "parallel/plan/tensor_problems.hpp"
#include "train/injected_delay.hpp"
#include "train/pace.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

namespace trainstone {

namespace {

/// The pieces between semicolons that are outside of quotes; empty ones are left out.
std::vector<std::string> split_environment(std::string const& text) {
  std::vector<std::string> pieces(1);
  char quote = 0;
  for (char const c : text) {
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    }
    if (c == ';' && quote == 0) {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  std::erase_if(pieces, [](std::string const& piece) { return piece.find_first_not_of(" \t\n") == std::string::npos; });
  return pieces;
}

void apply(Deck& deck, Impl::Setting const& setting) {
  try {
    setting.key->set(deck.config, setting.value);
  } catch (InputError const& error) { // a text that is none of the key's
    throw InputError(
        fmt::format("{}: {}: {}", Impl::place(setting.origin, deck.path), setting.key->name, error.what()));
  }
  deck.origins[setting.key->name] = setting.origin;
}

/// A grid of tensor ranks fills its keys in, but for those that come from a stronger place, which it must agree with.
/// Of a grid and of parallel.tensor the stronger one replaces the other one.
void fill_in_grid(Deck& deck) {
  Key const& grid_key = *find_key("parallel.tensor_grid");
  Origin& origin = deck.origins.at(grid_key.name);
  if (origin.kind == Origin::Kind::standard) return;
  if (deck.origins.at("parallel.tensor").kind > origin.kind) {
    grid_key.set(deck.config, grid_key.default_value());
    origin = {};
    return;
  }
  auto const imply = [&](char const* name, DeckValue const& value) {
    Origin const& now = deck.origins.at(name);
    if (now.kind < origin.kind) apply(deck, {find_key(name), value, {Origin::Kind::derived, 0, grid_key.name}});
  };
  std::int64_t const x = deck.config.parallel.tensor_grid[0], z = deck.config.parallel.tensor_grid[2];
  imply("parallel.tensor", x);
  if (z == 1) return;
  imply("parallel.strategy", std::string(to_string(Strategy::hsdp)));
  if (deck.config.parallel.strategy == Strategy::hsdp) imply("parallel.shard_group", z);
}

/// Values that other values imply: the preset's shape, and the sequence that the model can take.
void fill_in(Deck& deck) {
  fill_in_grid(deck);
  if (std::optional<GptConfig> const preset = find_preset(deck.config.model_setup.preset)) {
    RunConfig shape;
    shape.model = *preset;
    using Member = std::pair<char const*, std::int64_t GptConfig::*>;
    for (auto const& [name, member] :
         {Member{"model.layers", &GptConfig::layers}, Member{"model.heads", &GptConfig::heads},
          Member{"model.channels", &GptConfig::channels}, Member{"model.context", &GptConfig::context},
          Member{"model.vocab", &GptConfig::vocab}}) {
      if (deck.config.model.*member != 0) continue;
      Key const* const key = find_key(name);
      apply(deck, {key, key->get(shape), {Origin::Kind::preset, 0, deck.config.model_setup.preset}});
    }
  }
  if (deck.config.data.sequence == 0) {
    apply(deck, {find_key("data.sequence"), deck.config.model.context, {Origin::Kind::derived, 0, "model.context"}});
  }
}

/// Keys of a choice that was overridden go back to their defaults, and keys that only these read, too: a deck's bucket
/// size does not stand in the way of --set parallel.granularity=step.
void forget_keys_of_replaced_choices(Deck& deck) {
  std::set<std::string> forgotten;
  bool again = true;
  while (std::exchange(again, false))
    for (auto& [name, origin] : deck.origins) {
      std::optional<UnreadKey> const unread = find_unread(deck.config, name);
      if (!unread || origin.kind == Origin::Kind::standard) continue;
      if (origin.kind >= deck.origins.at(unread->choice).kind && !forgotten.contains(unread->choice)) continue;
      Key const& key = *find_key(name);
      key.set(deck.config, key.default_value());
      origin = {};
      forgotten.insert(name);
      again = true;
    }
}

/// Refuses keys that were set and have no effect.
void require_read_keys(Deck const& deck) {
  for (auto const& [name, origin] : deck.origins) {
    if (origin.kind == Origin::Kind::standard) continue;
    std::optional<UnreadKey> const unread = find_unread(deck.config, name);
    if (unread && !unread->has_a_check)
      fail_at(deck, name,
              fmt::format("{} is not read with {} = {}, only with {}: leave it out, or change that", name,
                          unread->choice, to_toml(find_key(unread->choice)->get(deck.config)), unread->readers));
  }
}

std::string relative_to(std::string const& deck_path, std::string const& file) {
  if (file.empty()) return file;
  return (std::filesystem::path(deck_path).parent_path() / file).lexically_normal().string();
}

} // namespace

std::string to_string(Origin const& origin) {
  switch (origin.kind) {
  case Origin::Kind::standard: return "default";
  case Origin::Kind::benchmark_class: return "class " + origin.text;
  case Origin::Kind::preset: return "preset " + origin.text;
  case Origin::Kind::deck: return fmt::format("deck:{}", origin.line);
  case Origin::Kind::environment: return "environment";
  case Origin::Kind::command_line: return "command line";
  case Origin::Kind::derived: return "derived";
  }
  return {};
}

std::string read_deck_text(DeckInput const& input) {
  if (input.path.empty()) return {};
  std::error_code ignored; // what cannot be asked cannot be opened either
  TRAINSTONE_REQUIRE_INPUT(!std::filesystem::is_directory(input.path, ignored),
                           "{}: is a folder, must be a deck (TOML file)", input.path);
  std::ifstream file(input.path, std::ios::binary);
  TRAINSTONE_REQUIRE_INPUT(file.good(), "{}: cannot read the deck: {}", input.path, std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Deck read_deck(DeckInput const& input) { return parse_deck(read_deck_text(input), input); }

Deck parse_deck(std::string_view text, DeckInput const& input) {
  Deck deck;
  deck.path = input.path;
  for (Key const& key : deck_keys()) deck.origins[key.name] = {};
  std::vector<Impl::Setting> given = Impl::read_toml(text, input.path);
  for (std::string const& assignment : split_environment(input.environment))
    given.push_back(Impl::read_override(assignment, Origin::Kind::environment));
  for (std::string const& assignment : input.overrides)
    given.push_back(Impl::read_override(assignment, Origin::Kind::command_line));
  for (Impl::Setting const& setting : Impl::class_settings(given)) apply(deck, setting);
  for (Impl::Setting const& setting : given) apply(deck, setting);
  fill_in(deck);
  forget_keys_of_replaced_choices(deck);
  if (std::optional<ConfigProblem> const problem = find_problem(deck.config)) {
    fail_at(deck, problem->key, problem->message);
  }
  require_read_keys(deck);
  return deck;
}

namespace {

/// \throws InputError if the ranks cannot be shared out to stages, tensor ranks and servers
Rank data_ranks_of(Deck const& deck, std::int64_t ranks) {
  ParallelConfig const& parallel = deck.config.parallel;
  for (auto const& problem :
       {find_stages_problem(parallel, ranks), find_tensor_ranks_problem(parallel, deck.config.model, ranks),
        find_servers_problem(parallel, ranks)})
    if (problem) fail_at(deck, problem->key, problem->message);
  return mesh_of(parallel, ranks).data();
}

/// \throws InputError if an overflow or longer times of parts are those of a rank that has none
void require_ranks_of_faults(Deck const& deck, std::int64_t ranks) {
  FaultConfig const& faults = deck.config.faults;
  Mesh const mesh = mesh_of(deck.config.parallel, ranks);
  for (auto const& [key, rank] : {std::pair("faults.straggler.rank", faults.straggler_rank),
                                  std::pair("faults.overflow.rank", faults.overflow_rank)})
    if (rank >= 0 && mesh.serves(static_cast<Rank>(rank)))
      fail_at(deck, key,
              fmt::format("{} = {} is a server, which computes no parts; nearest legal value: {}", key, rank,
                          mesh.data() - 1));
  std::int64_t const first = ranks - ranks / deck.config.parallel.pipeline, rank = faults.overflow_rank;
  if (faults.overflow_step > 0 && rank < first)
    fail_at(deck, "faults.overflow.rank",
            fmt::format("faults.overflow.rank = {} has no loss: gradients overflow on the last stage; nearest legal "
                        "value: {}",
                        rank, first));
}

} // namespace

RunConfig resolve(Deck const& deck, std::int64_t ranks) {
  RunConfig config = deck.config;
  if (std::int64_t const expected = config.comm.expected_ranks; expected != 0 && expected != ranks) {
    fail_at(deck, "comm.expected_ranks",
            fmt::format(
                "comm.expected_ranks = {}, but the run has {} rank{}; start it with mpiexec -n {} (estimate: --ranks "
                "{}), or --set comm.expected_ranks={}",
                expected, ranks, ranks == 1 ? "" : "s", expected, expected, ranks));
  }
  if (std::int64_t const nodes = config.comm.emulated_nodes; nodes > ranks) {
    fail_at(deck, "comm.emulated_nodes",
            fmt::format("comm.emulated_nodes = {} exceeds the number of ranks; nearest legal value: {}", nodes, ranks));
  }
  if (std::optional<ConfigProblem> const problem = find_delay_problem(config.faults, ranks)) {
    fail_at(deck, problem->key, problem->message);
  }
  if (std::optional<ConfigProblem> const problem =
          find_pace_problem(config.faults, ranks, has_dedicated_servers(config.parallel) ? config.parallel.servers : 0))
    fail_at(deck, problem->key, problem->message);
  if (std::int64_t const rank = config.faults.overflow_rank; rank >= ranks)
    fail_at(deck, "faults.overflow.rank",
            fmt::format("faults.overflow.rank = {} is no rank of this run; nearest legal value: {}", rank, ranks - 1));
  if (std::int64_t const rank = config.faults.order_rank; rank >= 0 && (rank >= ranks || ranks == 1)) {
    fail_at(deck, "faults.order.rank",
            ranks == 1 ? "faults.order.rank needs other ranks, which call another collective; the run has 1 rank"
                       : fmt::format("faults.order.rank = {} is no rank of this run; nearest legal value: {}", rank,
                                     ranks - 1));
  }
  Rank const data_ranks = data_ranks_of(deck, ranks);
  if (std::optional<ConfigProblem> const problem = find_problem(config.batch, data_ranks)) {
    fail_at(deck, problem->key, problem->message);
  }
  require_ranks_of_faults(deck, ranks);
  config.batch = resolve_batch(config.batch, data_ranks);
  if (auto const problem = find_parallel_problem(config.parallel, config.comm, data_ranks, config.batch.accumulation)) {
    fail_at(deck, problem->key, problem->message);
  }
  if (auto const problem =
          find_pipeline_problem(config.parallel, ranks, config.model.layers, config.batch.accumulation)) {
    fail_at(deck, problem->key, problem->message);
  }
  Index const positions = config.data.sequence > 0 ? config.data.sequence : config.model.context;
  if (auto const problem = find_tensor_problem(config.parallel, config.model, {config.batch.micro, positions}))
    fail_at(deck, problem->key, problem->message);
  if (std::optional<ConfigProblem> const problem = find_size_problem(config))
    fail_at(deck, problem->key, problem->message);
  if (std::optional<ConfigProblem> const problem = find_held_out_problem(config))
    fail_at(deck, problem->key, problem->message);
  if (std::optional<ConfigProblem> const problem = find_chunks_problem(config))
    fail_at(deck, problem->key, problem->message);
  config.model_setup.load = relative_to(deck.path, config.model_setup.load);
  for (std::string& file : config.data.files) file = relative_to(deck.path, file);
  for (std::string& file : config.data.validation_files) file = relative_to(deck.path, file);
  return config;
}

MeasuredWindow measured_window(Deck const& deck, std::int64_t steps, std::int64_t completed) {
  if (std::optional<ConfigProblem> const problem = find_length_problem(deck.config, steps)) {
    fail_at(deck, problem->key, problem->message);
  }
  BenchConfig const& bench = deck.config.bench;
  std::int64_t const left = steps - bench.warmup_steps;
  if (left < 1) {
    fail_at(deck, "bench.warmup_steps",
            fmt::format("bench.warmup_steps = {} leaves none of {} steps to measure; nearest legal value: {}",
                        bench.warmup_steps, steps, steps - 1));
  }
  if (bench.window > left) {
    fail_at(deck, "bench.window",
            fmt::format("bench.window = {} steps after {} warm-up steps exceed the training's {} steps; nearest legal "
                        "value: {}",
                        bench.window, bench.warmup_steps, steps, left));
  }
  std::int64_t const first = completed + bench.warmup_steps + 1;
  std::int64_t const last = bench.window > 0 ? first + bench.window - 1 : steps;
  return last <= steps ? MeasuredWindow{first, last} : MeasuredWindow{first, first - 1}; // a part of it is none
}

void fail_at(Deck const& deck, std::string const& key, std::string const& message) {
  Origin const& origin = deck.origins.at(key);
  if (origin.kind == Origin::Kind::derived)
    fail_at(deck, origin.text, fmt::format("{} ({} follows from {})", message, key, origin.text));
  throw InputError(fmt::format("{}: {}", Impl::place(origin, deck.path), message));
}

} // namespace trainstone
