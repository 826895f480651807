// trainstone matmul: one product in every way to distribute it: checked, counted, and timed in turns.

#include "matmul.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/buffers_start.hpp"
#include "comm/measurement/collective_timing.hpp"
#include "commbench.hpp"
#include "core/atomic_file.hpp"
#include "core/memory.hpp"
#include "core/plural.hpp"
#include "git_version.hpp"
#include "products/execution/distributed_product.hpp"
#include "products/plan/exact_matrices.hpp"
#include "products/plan/product_counts.hpp"
#include "report/output.hpp"
#include "report/product_table.hpp"
#include "result/result.hpp"
#include "short_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace trainstone {

namespace {

constexpr std::uint64_t most_calibrated_bytes = std::uint64_t{64} << 20;

/// A way to distribute the product, in execution.
class Way {
public:
  /// Collective over the communicator.
  Way(RankContext& context, Communicator& world, MatmulOptions const& options, ProductChoice const& choice)
      : m_exec(context.exec),
        m_world(world),
        m_bytes{bytes_per_value(options.inputs), sizeof(float), world.buffers()},
        m_plan(plan_product(choice.algorithm, choice.grid, options.size, world.topology(), world.rank())),
        m_product(context.exec, world, m_ledger, m_plan, options.inputs, options.gemm) {
    m_row.name = choice.name;
    m_row.grid = m_plan.grid;
    // each element may have the width of A's: a bound of elements
    m_row.bound_bytes = product_lower_bound(options.size, world.size()) * static_cast<double>(m_bytes.inputs);
    m_gemm_scratch = product_gemm_scratch(m_plan, options.inputs, options.gemm);
  }

  DistributedProduct& product() { return m_product; }
  ProductRow& row() { return m_row; }

  std::uint64_t longest_exchange() const {
    std::uint64_t longest = 0;
    for (ProductStep const& step : m_plan.steps)
      if (step.act == ProductStep::Act::exchange)
        longest = std::max(longest, static_cast<std::uint64_t>(step.problem.elements()) * m_bytes.of(step.operand));
    return longest;
  }

  /// Multiplies once, and adds the elements that are not exact to those of all ranks. Counts what was sent and kept.
  void check(ExactMatrices const& matrices) {
    m_product.fill([&](Operand operand, Index row, Index column) { return matrices.value(operand, row, column); });
    comm_counters() = {};
    m_product.run();
    Traffic const sent = comm_counters().total(Purpose::training);
    note_counts(sent);
    std::vector<float> const result = m_product.result();
    auto const held = held_block(m_plan, Operand::c);
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
      Index const element = held->share.begin + static_cast<Index>(i), columns = held->columns.size();
      if (result[i] != matrices.product(held->rows.begin + element / columns, held->columns.begin + element % columns))
        ++wrong;
    }
    m_row.wrong += control_all_reduce(m_exec, m_world, Operation::sum, wrong);
  }

  void predict(MachineModel const& machine) {
    double const mine = predict_exchange_seconds(m_plan, m_bytes, machine);
    m_row.exchange_seconds = control_all_reduce(m_exec, m_world, Operation::max, mine);
  }

private:
  void note_counts(Traffic const& sent) {
    Traffic const predicted = predict_product_traffic(m_plan, m_bytes);
    std::uint64_t const kept = m_ledger.high_water_total();
    std::uint64_t const planned = predict_product_bytes(m_plan, m_bytes, m_gemm_scratch);
    m_row.counted = busiest({sent.messages, sent.bytes, kept});
    m_row.predicted = busiest({predicted.messages, predicted.bytes, planned});
    std::int64_t const unlike = sent == predicted && kept == planned ? 0 : 1;
    m_row.unlike = std::max(m_row.unlike, control_all_reduce(m_exec, m_world, Operation::sum, unlike));
  }

  ProductCounts busiest(ProductCounts const& mine) {
    std::array<std::int64_t, 3> most{static_cast<std::int64_t>(mine.messages),
                                     static_cast<std::int64_t>(mine.sent_bytes),
                                     static_cast<std::int64_t>(mine.kept_bytes)};
    control_all_reduce(m_exec, m_world, Operation::max, most);
    return {static_cast<std::uint64_t>(most[0]), static_cast<std::uint64_t>(most[1]),
            static_cast<std::uint64_t>(most[2])};
  }

  ExecutionSpace m_exec;
  Communicator& m_world;
  ProductBytes m_bytes;
  ProductPlan m_plan;
  MemoryLedger m_ledger;
  DistributedProduct m_product;
  std::uint64_t m_gemm_scratch = 0;
  ProductRow m_row;
};

/// Before anything is allocated. Ranks of a machine share its memory, also where they are taken to sit on several
/// nodes.
/// \throws CollectiveError (exit 69)
void require_memory(RankContext& context, Communicator const& world, MatmulOptions const& options) {
  collectively(world, [&] {
    ProductBytes const bytes{bytes_per_value(options.inputs), sizeof(float), world.buffers()};
    auto const ranks = static_cast<std::uint64_t>(context.communicator.node_size());
    std::uint64_t needed = 0;
    for (ProductChoice const& choice : options.ways.choices) {
      ProductPlan const plan =
          plan_product(choice.algorithm, choice.grid, options.size, world.topology(), world.rank());
      needed += predict_product_bytes(plan, bytes, product_gemm_scratch(plan, options.inputs, options.gemm));
    }
    std::uint64_t const present = host_reaches_memory
                                      ? describe_machine().memory_bytes
                                      : current_device().memory_bytes * std::min<std::uint64_t>(ranks, devices());
    if (ranks * needed > present)
      throw Error(fmt::format("does not fit: {} on this machine need {}, and there are {}; name fewer algorithms or "
                              "smaller extents",
                              plural(static_cast<std::int64_t>(ranks), "rank"), mebibytes(ranks * needed),
                              mebibytes(present)),
                  ExitCode::does_not_fit);
  });
}

ProductHeader make_header(MatmulOptions const& options, Communicator const& world, RankContext& context, bool emulated,
                          std::string const& machine) {
  ProductHeader header;
  header.version = fmt::format("{} git {} {}", TRAINSTONE_VERSION, git_commit, git_dirty ? "dirty" : "clean");
  header.mpi = context.mpi.implementation();
  header.cpu = describe_machine().cpu;
  header.kokkos = kokkos_description();
  header.buffers = to_string(world.buffers());
  header.machine = machine;
  header.timing = fmt::format("{} samples of each, interleaved A B B A; a sample is some calls after a barrier, its "
                              "time the slowest rank's",
                              options.samples);
  header.ranks = world.size();
  header.nodes = world.topology().nodes();
  header.emulated_nodes = emulated;
  header.size = options.size;
  header.type = to_string(options.inputs);
  header.gemm = describe_gemm(options.gemm, options.inputs);
  return header;
}

void measure(std::deque<Way>& ways, Communicator const& world, int samples) {
  std::vector<TimedCall> calls;
  for (Way& way : ways) {
    calls.emplace_back([&way] { way.product().run(); });
    calls.emplace_back([&way] { way.product().multiply_alone(); });
  }
  std::vector<TimedSamples> const timed = time_interleaved(world, calls, {.warmup_calls = 2, .samples = samples});
  for (std::size_t i = 0; i < ways.size(); ++i) {
    ways[i].row().seconds = timed[2 * i].seconds;
    ways[i].row().multiply_seconds = timed[2 * i + 1].seconds;
  }
}

/// \return the exit code
int conclude(MatmulArguments const& arguments, MatmulOptions const& options, ProductHeader const& header,
             std::deque<Way>& ways, Communicator const& world) {
  std::vector<ProductRow> rows;
  for (Way& way : ways) rows.push_back(way.row());
  bool const first = world.rank() == 0, right = std::ranges::all_of(rows, &ProductRow::is_right);
  if (first) fmt::print("{}", product_table(options.size, rows));
  collectively(world, [&] {
    if (!first || arguments.json_file.empty()) return;
    write_file_in_folder(arguments.json_file, product_json(header, rows, options.ways.left_out));
  });
  if (first) fmt::print("RESULT: {}\n", right ? "ALL EXACT" : "WRONG");
  return static_cast<int>(right ? ExitCode::valid : ExitCode::verification_failed);
}

} // namespace

int matmul(MatmulArguments const& arguments, RankContext& context) {
  std::optional<Communicator> world;
  std::optional<ExactMatrices> matrices;
  MatmulOptions options;
  int nodes = 0;
  collectively(context.communicator, [&] {
    nodes = emulated_nodes(arguments.emulated_nodes);
    world.emplace(Communicator::world(nodes));
    options = check_matmul(arguments, world->size());
    matrices.emplace(options.size);
    if (world->rank() == 0 && !arguments.json_file.empty()) require_writable(arguments.json_file);
  });
  use_chosen_buffers(*world, arguments.buffers, context.exec);
  require_memory(context, *world, options);
  std::deque<Way> ways;
  std::uint64_t longest = 0;
  for (ProductChoice const& choice : options.ways.choices) {
    ways.emplace_back(context, *world, options, choice);
    longest = std::max(longest, ways.back().longest_exchange());
  }
  FittedMachine machine;
  std::string const source = read_or_calibrate(arguments.machine_file, own_buffers(world->buffers()),
                                               std::min(longest, most_calibrated_bytes), *world, context, machine);
  ProductHeader const header = make_header(options, *world, context, nodes > 0, source);
  if (world->rank() == 0) {
    fmt::print("{}", product_header_lines(header));
    for (std::string const& reason : options.ways.left_out) fmt::print("# left out: {}\n", reason);
  }
  for (Way& way : ways) {
    way.predict(machine.model());
    way.check(*matrices);
  }
  measure(ways, *world, options.samples);
  for (Way& way : ways) way.check(*matrices);
  return conclude(arguments, options, header, ways, *world);
}

} // namespace trainstone
