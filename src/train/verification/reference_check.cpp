#include "train/verification/reference_check.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "model/llmc/llmc_parameters.hpp"
#include "model/parameter_runs.hpp"
#include "parallel/plan/mesh.hpp"
#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/pipeline_problems.hpp"
#include "parallel/plan/tensor_problems.hpp"
#include "train/planned_trainer.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>

namespace trainstone {

namespace {

/// Raises `worst` to `value`; a NaN stays, so that it fails every bound.
void raise(double& worst, double value) {
  if (std::isnan(value) || value > worst) worst = value;
}

/// Largest absolute difference and largest reference value seen; a NaN stays.
struct Difference {
  double absolute = 0;
  double largest = 0;

  void add(double value, double reference) {
    raise(absolute, std::abs(value - reference));
    largest = std::max(largest, std::abs(reference));
  }
  double relative() const { return absolute == 0 ? 0 : absolute / largest; }
};

ReferenceRow make_row(std::string const& name, double absolute, double relative, double bound, bool is_relative) {
  bool const passed = (is_relative ? relative : absolute) <= bound; // false for NaN
  return {name, absolute, relative, bound, is_relative, passed};
}

/// NaN survives the maximum over ranks as infinity.
double worst_over_ranks(ExecutionSpace const& exec, Communicator& communicator, double value) {
  if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
  return control_all_reduce(exec, communicator, Operation::max, value);
}

/// A data rank has one micro-batch; on stages it has one micro-batch per sample, for schedules to order.
RunConfig config_for(LlmcShape const& shape, Index batch, Index sequence, RunConfig const& choices, Rank data_ranks) {
  RunConfig config;
  config.model = config_of(shape);
  config.data.sequence = sequence;
  Index const samples = batch / data_ranks;
  config.batch = choices.parallel.pipeline > 1 ? BatchConfig{1, samples, batch} : BatchConfig{samples, 1, batch};
  config.model_options = choices.model_options;
  config.kernels = choices.kernels;
  config.parallel = choices.parallel;
  config.comm = choices.comm;
  config.schedule = {ScheduleType::constant, 0, 1.0};
  return config;
}

/// The state's one batch, at every step.
BatchSource batch_source(LlmcStateReader const& state, Index micro) {
  return [&state, micro](std::int64_t, Index v, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
    Index const first = v * micro * state.sequence();
    std::copy_n(state.inputs().begin() + first, inputs.size(), inputs.begin());
    std::copy_n(state.targets().begin() + first, targets.size(), targets.begin());
  };
}

/// A training of the reference's model on its batch.
struct ReferenceRun : PlannedTrainer {
  ReferenceRun(ExecutionSpace const& exec, Communicator& communicator, ReferenceFiles const& files,
               LlmcStateReader const& state, RunConfig const& config)
      : PlannedTrainer(exec, communicator,
                       resolve_run(config, communicator.topology(), {.buffers = communicator.buffers()}),
                       {batch_source(state, config.batch.micro), {}, 0}, 1) {
    trainer.engine().set_parameters([&](Index group, Range share, Vector<float> values) {
      load_parameters(exec, files.model, resolved.config.model, plan.table, group, share, values);
    });
  }
};

/// Of a rank that has the model's head.
void add_logits(ExecutionSpace const& exec, Trainer const& trainer, Index micro_batch, LlmcStateReader& state,
                Difference& difference) {
  Gpt const& model = trainer.model();
  Index const rows = model.shape().rows(), vocab = model.config().vocab;
  TensorSlices const& slices = trainer.slices();
  std::vector<float> expected(static_cast<std::size_t>(vocab));
  for (Index i = 0; i < rows; ++i) {
    state.read_logits(i + rows * micro_batch, expected);
    for (Index slice = 0; slice < slices.count(); ++slice) {
      StoredMatrix const logits = model.logits(slice);
      ConstStoredVector const row = logits.flat().part(i * logits.columns, logits.columns);
      Index token = (slices.first() + slice) * logits.columns;
      for (float const value : copy_to_host(exec, row, "trainstone::train::logits"))
        if (token < vocab) difference.add(value, expected[static_cast<std::size_t>(token++)]);
    }
  }
}

/// The last stage of each data rank has the logits of its micro-batches.
ReferenceRow compare_logits(ExecutionSpace const& exec, Communicator& communicator, ReferenceRun& run,
                            LlmcStateReader& state) {
  ShardedEngine const& engine = run.trainer.engine();
  Index const own = run.resolved.config.batch.accumulation;
  Index const first = own * engine.plan().layout.mesh.data_index(communicator.rank());
  Difference difference;
  bool const computes = !engine.plan().layout.serves();
  for (Index micro_batch = first; computes && micro_batch < first + own; ++micro_batch) {
    run.trainer.evaluate(0, micro_batch);
    if (engine.table().stage().head) add_logits(exec, run.trainer, micro_batch, state, difference);
  }
  double const absolute = worst_over_ranks(exec, communicator, difference.absolute);
  double const largest = control_all_reduce(exec, communicator, Operation::max, difference.largest);
  return make_row("logits", absolute, absolute / largest, logits_bound, false);
}

/// Adds what this rank holds of the summed gradient of a tensor, or of a slice of it.
void add_own_gradient(ExecutionSpace const& exec, ReferenceRun& run, ParameterTensor const& entry,
                      std::vector<float> const& expected, Difference& difference) {
  ShardedEngine const& engine = run.trainer.engine();
  Range const share = engine.plan().layout.share(entry.group);
  for_each_run(run.plan.table, entry.group, share, [&](ParameterRun const& own) {
    if (&own.tensor != &entry) return;
    ConstStoredVector const values = engine.gradient_share(entry.group).part(own.in_group - share.begin, own.size);
    auto element = static_cast<std::size_t>(own.in_whole);
    for (float const value : copy_to_host(exec, values, "trainstone::train::compare_gradients")) {
      // both sides may pad the vocabulary with rows that the other has not: their gradient is zero
      difference.add(value, element < expected.size() ? expected[element] : 0.0f);
      ++element;
    }
  });
}

/// One row per tensor of the file; slices of a per-layer tensor are compared each with its own largest element. Every
/// rank compares what it holds.
std::vector<ReferenceRow> compare_gradients(ExecutionSpace const& exec, Communicator& communicator, ReferenceRun& run,
                                            LlmcShape const& shape, LlmcStateReader& state) {
  std::vector<ReferenceRow> rows;
  for (LlmcTensor const& tensor : llmc_tensors(shape)) {
    std::vector<float> expected(static_cast<std::size_t>(tensor.extent()));
    double absolute = 0, relative = 0;
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      state.read_gradient(tensor, layer, expected);
      Difference difference;
      for (float const value : expected) difference.add(value, value);
      for (ParameterTensor const* const entry : find_entries(run.plan.table, tensor, layer))
        add_own_gradient(exec, run, *entry, expected, difference);
      raise(absolute, difference.absolute);
      raise(relative, difference.relative());
    }
    rows.push_back(make_row(fmt::format("gradient {}", tensor.name), worst_over_ranks(exec, communicator, absolute),
                            worst_over_ranks(exec, communicator, relative), gradient_bound, true));
  }
  return rows;
}

nlohmann::json read_losses(std::string const& path) {
  std::ifstream file(path);
  TRAINSTONE_REQUIRE_INPUT(file.good(), "{}: cannot be read", path);
  try {
    return nlohmann::json::parse(file);
  } catch (nlohmann::json::exception const& problem) {
    throw InputError(fmt::format("{}: {}", path, problem.what()));
  }
}

struct ReferenceCurve {
  std::string name;
  OptimizerConfig optimizer;
  std::vector<double> losses, norms;
};

std::vector<ReferenceCurve> parse_recipes(std::string const& path) {
  nlohmann::json const json = read_losses(path);
  std::vector<ReferenceCurve> recipes;
  try {
    for (auto const& [name, entry] : json.at("recipes").items()) {
      ReferenceCurve recipe{name, {}, entry.at("losses"), entry.at("grad_norms")};
      nlohmann::json const& adamw = json.at("adamw");
      recipe.optimizer.betas = {adamw.at("beta1").get<double>(), adamw.at("beta2").get<double>()};
      recipe.optimizer.epsilon = adamw.at("eps");
      recipe.optimizer.learning_rate = entry.at("lr");
      recipe.optimizer.weight_decay = entry.at("weight_decay");
      recipe.optimizer.clip = entry.at("clip");
      std::string const decay = entry.at("decay");
      TRAINSTONE_REQUIRE_INPUT(decay == "all" || decay == "matrices",
                               "{}: recipe {}: decay \"{}\": must be \"all\" or \"matrices\"", path, name, decay);
      recipe.optimizer.decay = decay == "all" ? DecayScope::all : DecayScope::matrices;
      TRAINSTONE_REQUIRE_INPUT(recipe.losses.size() == recipe.norms.size() && !recipe.losses.empty(),
                               "{}: recipe {} has {} losses and {} norms", path, name, recipe.losses.size(),
                               recipe.norms.size());
      recipes.push_back(std::move(recipe));
    }
  } catch (nlohmann::json::exception const& problem) {
    throw InputError(fmt::format("{}: {}", path, problem.what()));
  }
  TRAINSTONE_REQUIRE_INPUT(!recipes.empty(), "{}: no recipes", path);
  return recipes;
}

std::vector<ReferenceRow> compare_curve(Trainer& trainer, ReferenceCurve const& recipe) {
  double loss_absolute = 0, loss_relative = 0, norm_absolute = 0, norm_relative = 0;
  for (std::size_t i = 0; i < recipe.losses.size(); ++i) {
    StepReport const report = trainer.step(static_cast<std::int64_t>(i) + 1);
    raise(loss_absolute, std::abs(report.loss - recipe.losses[i]));
    raise(loss_relative, std::abs(report.loss / recipe.losses[i] - 1));
    raise(norm_absolute, std::abs(report.norm - recipe.norms[i]));
    raise(norm_relative, std::abs(report.norm / recipe.norms[i] - 1));
  }
  return {make_row("losses " + recipe.name, loss_absolute, loss_relative, curve_bound, true),
          make_row("norms " + recipe.name, norm_absolute, norm_relative, curve_bound, true)};
}

} // namespace

void check_reference_files(ReferenceFiles const& files, RunConfig const& choices, Rank ranks) {
  ParallelConfig const& parallel = choices.parallel;
  auto const refuse = [](std::optional<ConfigProblem> const& problem) {
    if (problem) throw InputError(problem->message);
  };
  LlmcShape const shape = LlmcModelReader(files.model).shape();
  LlmcStateReader const state(files.state, shape);
  refuse(find_stages_problem(parallel, ranks));
  refuse(find_servers_problem(parallel, ranks));
  refuse(find_tensor_ranks_problem(parallel, {.heads = shape.heads}, ranks));
  Rank const data_ranks = mesh_of(parallel, ranks).data();
  TRAINSTONE_REQUIRE_INPUT(state.batch() % data_ranks == 0, "{}: its batch of {} does not divide by {} data ranks",
                           files.state, state.batch(), data_ranks);
  RunConfig const config = config_for(shape, state.batch(), state.sequence(), choices, data_ranks);
  refuse(find_parallel_problem(parallel, choices.comm, data_ranks, config.batch.accumulation));
  refuse(find_pipeline_problem(parallel, ranks, config.model.layers, config.batch.accumulation));
  refuse(find_tensor_problem(parallel, config.model, {config.batch.micro, config.data.sequence}));
  if (!files.losses.empty()) parse_recipes(files.losses);
}

std::vector<ReferenceRow> compare_with_reference(ExecutionSpace const& exec, Communicator& communicator,
                                                 ReferenceFiles const& files, RunConfig const& choices) {
  check_reference_files(files, choices, communicator.size());
  Rank const data_ranks = mesh_of(choices.parallel, communicator.size()).data();
  LlmcShape const shape = LlmcModelReader(files.model).shape();
  LlmcStateReader state(files.state, shape);
  std::vector<ReferenceCurve> const recipes =
      files.losses.empty() ? std::vector<ReferenceCurve>{} : parse_recipes(files.losses);
  RunConfig config = config_for(shape, state.batch(), state.sequence(), choices, data_ranks);

  std::vector<ReferenceRow> rows;
  {
    ReferenceRun run(exec, communicator, files, state, config);
    rows.push_back(compare_logits(exec, communicator, run, state));
    double const difference = std::abs(run.trainer.gradient(1) - static_cast<double>(state.loss()));
    run.trainer.finish();
    rows.push_back(make_row("loss", difference, difference / static_cast<double>(state.loss()), loss_bound, false));
    for (ReferenceRow const& row : compare_gradients(exec, communicator, run, shape, state)) rows.push_back(row);
  }
  for (ReferenceCurve const& recipe : recipes) {
    config.optimizer = recipe.optimizer;
    ReferenceRun run(exec, communicator, files, state, config);
    for (ReferenceRow const& row : compare_curve(run.trainer, recipe)) rows.push_back(row);
  }
  return rows;
}

} // namespace trainstone
