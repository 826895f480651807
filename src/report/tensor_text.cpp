#include "report/tensor_text.hpp"

#include "core/aligned.hpp"
#include "core/plural.hpp"
#include "model/parameter_runs.hpp"
#include "parallel/program/step_programs.hpp"
#include "report/piece_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trainstone {

namespace {

Index block_of(Tensor tensor) { return is_per_block(tensor) ? 0 : -1; }

std::vector<Tensor> all_tensors() {
  std::vector<Tensor> all;
  for (int kind = 0; kind < tensor_kinds; ++kind) all.push_back(static_cast<Tensor>(kind));
  return all;
}

/// Adds a range that is not before the last one.
void append(std::vector<Range>& ranges, Range const& more) {
  if (!ranges.empty() && more.begin <= ranges.back().end)
    ranges.back().end = std::max(ranges.back().end, more.end);
  else
    ranges.push_back(more);
}

ParameterTensor const& entry_here(TensorRanks const& all, Tensor tensor) {
  return all.tables.front().find(tensor, block_of(tensor));
}

char const* words_of(Split::Of cut) {
  switch (cut) {
  case Split::Of::nothing: return "not cut";
  case Split::Of::rows: return "rows";
  case Split::Of::columns: return "columns";
  case Split::Of::heads: return "heads";
  }
  return "";
}

/// "heads", "heads, columns"
std::string words_of(ParameterTensor const& tensor) {
  if (!tensor.features.cuts()) return words_of(tensor.split.of);
  std::string const of_features = words_of(tensor.features.of);
  return tensor.split.cuts() ? fmt::format("{}, {}", words_of(tensor.split.of), of_features) : of_features;
}

/// "[0, 2) [4, 6)"
std::string ranges_text(std::vector<Range> const& ranges) {
  std::string text;
  for (Range const& range : ranges) text += fmt::format("{}[{}, {})", text.empty() ? "" : " ", range.begin, range.end);
  return text;
}

std::string shape_text(ParameterTensor const& tensor) {
  if (tensor.is_matrix) return fmt::format("({}, {})", tensor.rows, tensor.columns);
  return fmt::format("({})", tensor.columns);
}

GptOptions const& options_of(TensorRanks const& all) { return all.plans.front().parts.options(); }

std::string positions_text(TensorRanks const& all) {
  if (!options_of(all).shares_positions()) return "";
  return fmt::format("Products, attention and the loss work on all rows. Outside of them a rank has {}.\n",
                     plural(own_rows(all.shape, options_of(all)).rows(), "row"));
}

std::string grid_text(TensorRanks const& all) {
  TensorSlices const& slices = options_of(all).slices;
  if (!slices.cut_features()) return "";
  return fmt::format(
      "They form a grid: {} share slices of every layer, {} share the channels of the residual stream, of "
      "which each\nhas {}.\n",
      slices.ranks, slices.feature_parts, all.model.channels / slices.feature_parts);
}

std::string title_text(TensorRanks const& all) {
  GptConfig const& model = all.model;
  std::string const shared =
      all.ranks() == 1 ? "1 tensor rank has all of every layer"
                       : fmt::format("{} tensor ranks share every layer and work on the same data", all.ranks());
  return fmt::format("{}\nThe example is a GPT with {}, {}, {}, {} and a vocabulary of {}.\nA micro-batch is {}, which "
                     "has {}.\n",
                     shared, plural(model.layers, "block"), plural(model.heads, "head"),
                     plural(model.channels, "channel"), plural(model.context, "position"), model.vocab,
                     plural(all.shape.batch, "sample"), plural(all.shape.rows(), "row")) +
         grid_text(all) + positions_text(all);
}

/// "a_0 | a_1", "a_0 | ... | a_7"; each is made of its number.
template <class Part>
std::string joined_parts(Rank ranks, char const* separator, Part const& part) {
  std::string const middle = ranks > 2 ? fmt::format("{}...", separator) : "";
  return fmt::format("{}{}{}{}", part(0), middle, separator, part(ranks - 1));
}

/// Both ways to cut a product.
std::string picture_text(Rank ranks, bool is_grid) {
  if (ranks == 1 && !is_grid) return "Nothing is cut, and nothing is brought together.\n";
  std::string const outputs = joined_parts(ranks, " | ", [](Rank rank) { return fmt::format("x W_{}^T", rank); });
  std::string const inputs =
      joined_parts(ranks, " + ", [](Rank rank) { return fmt::format("x_{} W_{}^T", rank, rank); });
  std::string const text = "A layer computes y = x W^T. W has a row for every output and a column for every input. "
                           "Slides that write\ny = W^T x have the transpose of this W. There are two ways to cut W:\n";
  return text +
         aligned({{"along its outputs (rows of W):", fmt::format("y = [{}]", outputs),
                   "parts of y lie side by side, nothing is summed"},
                  {"along its inputs (columns of W):", "y = " + inputs, "every rank has a part of a sum of y"}}) +
         "Half a block cuts its first product along the outputs and its last one along the inputs. What lies between\n"
         "them stays on its rank. So half a block needs one sum forward and one sum backward.\n" +
         (is_grid ? "On a grid W is cut both ways: x ranks share one side and y ranks the other. So every product is a "
                    "sum,\n"
                    "over x or over y.\n"
                  : "");
}

std::string shapes_table(TensorRanks const& all) {
  std::vector<std::vector<std::string>> rows{{"tensor", "whole", "cut", "on a rank"}};
  for (Tensor const tensor : all_tensors())
    rows.push_back({std::string(to_string(tensor)), shape_text(all.whole.find(tensor, block_of(tensor))),
                    words_of(entry_here(all, tensor)), shape_text(entry_here(all, tensor))});
  return "Tensors. Those from ln1w to fcprojb exist in every block.\n" + aligned(rows);
}

/// A line per rank. A bias is beside its matrix if it is cut as the matrix is.
std::string parts_table(TensorRanks const& all) {
  struct Column {
    std::string names;
    char const* what;
    std::vector<std::string> parts; ///< by rank
  };
  std::vector<Column> columns;
  for (Tensor const tensor : all_tensors()) {
    ParameterTensor const& entry = entry_here(all, tensor);
    bool const of_rows = !entry.is_matrix ? entry.split.cuts() || entry.features.cuts() : entry.cut_of_rows().parts > 1,
               of_columns = entry.is_matrix && entry.cut_of_columns().parts > 1;
    if (!of_rows && !of_columns) continue;
    Column column{std::string(to_string(tensor)),
                  of_rows && of_columns ? "rows x columns"
                  : of_rows             ? "rows"
                                        : "columns",
                  {}};
    for (Rank rank = 0; rank < all.ranks(); ++rank) {
      TensorPart const part = held_part(all, tensor, rank);
      std::string const between = of_rows && of_columns ? " x " : "";
      column.parts.push_back((of_rows ? ranges_text(part.rows) : "") + between +
                             (of_columns ? ranges_text(part.columns) : ""));
    }
    bool const is_vector = !all.whole.find(tensor, block_of(tensor)).is_matrix;
    if (is_vector && !columns.empty() && columns.back().parts == column.parts)
      columns.back().names += ", " + column.names;
    else
      columns.push_back(column);
  }
  if (columns.empty()) return "";
  std::vector<std::vector<std::string>> rows(static_cast<std::size_t>(all.ranks()) + 1);
  rows.front().push_back("");
  for (Rank rank = 0; rank < all.ranks(); ++rank)
    rows[static_cast<std::size_t>(rank) + 1].push_back(fmt::format("rank {}", rank));
  for (Column const& column : columns) {
    rows.front().push_back(fmt::format("{} {}", column.names, column.what));
    for (std::size_t rank = 0; rank < column.parts.size(); ++rank) rows[rank + 1].push_back(column.parts[rank]);
  }
  return "\nWhat each rank has of the tensors that are cut. All ranks have the others, and update them alike. Elements "
         "of "
         "a vector\ncount as rows. A rank has the rows of its heads among those of queries, of keys and of values. It "
         "looks up the tokens\nthat are in its rows of wte, and has zeros for all others.\n" +
         aligned(rows);
}

/// Whether the rank waits at once for what it starts.
bool waits_next(Instruction const& start, Instruction const& next) {
  return next.act == Act::wait && next.started == start.act && next.subject == start.subject;
}

/// The lines of a micro-batch, as its program goes.
class PieceLines {
public:
  explicit PieceLines(ShardPlan const& plan) : m_plan(plan) {}

  std::string text() {
    std::vector<Instruction> all;
    for_each_instruction(make_step_program(m_plan).step, [&](Instruction const& one) { all.push_back(one); });
    for (std::size_t i = 0; i < all.size(); ++i) {
      bool const together = i > 0 && waits_next(all[i - 1], all[i]);
      if (computes(all[i].act)) compute(all[i]);
      if (all[i].act == Act::exchange) exchange(all[i], i + 1 < all.size() && waits_next(all[i], all[i + 1]));
      if (all[i].act == Act::wait && all[i].started == Act::exchange && !together)
        m_text += fmt::format("     waits for: {}\n", to_string(exchange_of(all[i])));
    }
    return m_text;
  }

private:
  void compute(Instruction const& one) {
    std::string const pass =
        one.act == Act::loss ? "loss" : fmt::format("{} {}", to_string(one.act), to_string(part_of(one, m_plan.parts)));
    if (pass != m_pass) m_text += pass + "\n";
    m_pass = pass;
    std::vector<PartPiece> const pieces = pieces_of(one, m_plan.parts);
    Range const run = pieces_run(one, m_plan.parts);
    for (Index piece = run.begin; piece < run.end; ++piece)
      m_text += fmt::format("  {}  {}\n", piece,
                            piece_words(pieces[static_cast<std::size_t>(piece)], m_plan.parts.options()));
  }

  void exchange(Instruction const& one, bool waits) {
    PlannedExchange const& planned = m_plan.tensor.exchanges.at(exchange_of(one));
    Index const values = planned.collective.problem.elements();
    m_text += fmt::format("     {}: {}, {} of {} bytes = {} bytes\n", waits ? "together" : "starts",
                          to_string(exchange_of(one)), plural(values, "value"), planned.element_bytes,
                          static_cast<std::size_t>(values) * planned.element_bytes);
  }

  ShardPlan const& m_plan;
  std::string m_text, m_pass;
};

std::string pieces_text(TensorRanks const& all) {
  std::string text = "\nA micro-batch on a rank, piece by piece.";
  if (all.ranks() > 1)
    text += " \"together\" says what all ranks bring together before the next piece.\n\"starts\" means that a rank "
            "computes the next piece meanwhile.";
  return text + "\n" + PieceLines(all.plans.front()).text();
}

/// "128 bytes in 2 messages", or "96 to 128 bytes" where ranks differ.
std::string sent_text(std::vector<Traffic> const& sent) {
  auto const [least, most] = std::ranges::minmax(sent, {}, &Traffic::bytes);
  if (least.bytes == most.bytes)
    return fmt::format("{} bytes in {}", most.bytes, plural(static_cast<Index>(most.messages), "message"));
  return fmt::format("{} to {} bytes", least.bytes, most.bytes);
}

std::string gathers_text(std::vector<CountedExchange> const& exchanges) {
  std::map<SliceExchange, Index> times;
  for (CountedExchange const& one : exchanges) times[one.exchange] = one.times;
  return fmt::format(
      "Rows are gathered {} = 4 L + 2 times, and {} = 2 L times again: backward needs the rows of a norm, "
      "of which a\nrank keeps its own. With the sums these are 10 per block. The gradients of each norm "
      "are added up, {} = 2 L + 1 times.\n",
      times[SliceExchange::gather], times[SliceExchange::gather_again], times[SliceExchange::norm_sums]);
}

std::string sums_text(TensorRanks const& all) {
  std::vector<CountedExchange> const exchanges = counted_exchanges(all);
  if (exchanges.empty()) return "";
  std::vector<std::vector<std::string>> rows{
      {"together in a micro-batch", "collective", "its key", "times", "values", "bytes of all times", "a rank sends"}};
  for (CountedExchange const& one : exchanges)
    rows.push_back(
        {std::string(to_string(one.exchange)), std::string(to_string(one.collective)),
         find_algorithm_key(one.collective, true)->name, std::to_string(one.times), std::to_string(one.values),
         std::to_string(static_cast<std::size_t>(one.times * one.values) * one.value_bytes), sent_text(one.sent)});
  std::string text = "\n" + aligned(rows), others;
  bool const shares_positions = options_of(all).shares_positions();
  char const* const of_parts = options_of(all).slices.feature_parts > 1 ? "/y" : "";
  for (CountedExchange const& one : exchanges) switch (one.exchange) {
    case SliceExchange::sum:
      text += fmt::format("{} = 4 L + 2 for L = {}. A sum has n h{} = {} x {} values: n rows of h{} channels{}.\n",
                          plural(one.times, "sum"), plural(all.model.layers, "block"), of_parts, all.shape.rows(),
                          all.model.channels / options_of(all).slices.feature_parts, of_parts,
                          shares_positions ? ", of which a rank gets its own" : "");
      break;
    case SliceExchange::loss_maximum:
    case SliceExchange::loss_sums:
      others += fmt::format("{}{}", others.empty() ? "" : " and ", plural(one.values / all.shape.rows(), "value"));
      break;
    case SliceExchange::gather:
    case SliceExchange::gather_again:
    case SliceExchange::norm_sums: break; // of shared positions, below
    case SliceExchange::qkv:
    case SliceExchange::hidden:
    case SliceExchange::heads:
    case SliceExchange::logits:
    case SliceExchange::feature_sums: break; // of shared features
    }
  if (!others.empty())
    text += fmt::format("The loss needs small ones: {} per row, however many channels there are.\n", others);
  if (options_of(all).slices.cut_features())
    text +=
        "Products that read channels of the residual stream leave a sum over the ranks that share them, and a layer "
        "norm needs\nsums over them, too.\n";
  return shares_positions ? text + gathers_text(exchanges) : text;
}

} // namespace

GptConfig small_model_of(Rank ranks, PositionsOfRanks positions, Rank features) {
  Index const of_all = 8, of_rank = (of_all + ranks - 1) / ranks, slices = ranks / features;
  return {.layers = 1,
          .heads = slices,
          .channels = 2 * ranks,
          .context = positions == PositionsOfRanks::shared ? of_rank * ranks : of_all,
          .vocab = 8 * slices,
          .vocab_multiple = 1};
}

TensorRanks tensor_ranks(GptConfig const& model, Rank ranks, PositionsOfRanks positions, Rank features) {
  bool const shared = positions == PositionsOfRanks::shared;
  TRAINSTONE_REQUIRE_INPUT(!shared || model.context % ranks == 0, "{} do not divide the {} of a sample",
                           plural(ranks, "tensor rank"), plural(model.context, "position"));
  Rank const slices = ranks / features;
  TRAINSTONE_REQUIRE(slices * features == ranks, "{} ranks in {} parts", ranks, features);
  GptConfig const padded = model.in_slices(slices);
  TensorRanks all{padded, {.batch = 1, .sequence = model.context}, ParameterTable(padded, 1), {}, {}};
  ParallelConfig const parallel{.tensor = slices, .tensor_grid = {slices, features, 1}};
  for (Rank rank = 0; rank < ranks; ++rank) {
    GptOptions const options{.slices = {.blocks = slices,
                                        .ranks = slices,
                                        .rank = rank % slices,
                                        .feature_parts = features,
                                        .feature_part = rank / slices},
                             .sequence_parallel = shared};
    all.tables.emplace_back(padded, 1, options.slices);
    all.plans.push_back(make_shard_plan(parallel, {}, {}, {}, all.tables.back(), Topology::one_node(ranks), rank, 1,
                                        options, {all.shape, padded.channels, padded.padded_vocab()}));
  }
  return all;
}

TensorPart held_part(TensorRanks const& all, Tensor tensor, Rank rank) {
  ParameterTensor const& whole = all.whole.find(tensor, block_of(tensor));
  Index const columns = whole.is_matrix ? whole.columns : 1;
  ParameterTable const& table = all.tables[static_cast<std::size_t>(rank)];
  Index const group = table.find(tensor, block_of(tensor)).group;
  TensorPart part;
  for_each_run(table, group, {0, table.groups()[static_cast<std::size_t>(group)].end()}, [&](ParameterRun const& run) {
    if (run.tensor.tensor != tensor) return;
    Index const begin = run.in_whole, end = begin + run.size, row = begin / columns;
    bool const has_whole_rows = begin % columns == 0 && end % columns == 0;
    append(part.rows, {row, has_whole_rows ? end / columns : row + 1});
    append(part.columns, has_whole_rows ? Range{0, columns} : Range{begin - row * columns, end - row * columns});
  });
  return part;
}

std::vector<CountedExchange> counted_exchanges(TensorRanks const& all) {
  std::map<SliceExchange, Index> times;
  for_each_instruction(make_step_program(all.plans.front()).step, [&](Instruction const& one) {
    if (one.act == Act::exchange) ++times[exchange_of(one)];
  });
  std::vector<CountedExchange> counted;
  for (auto const& [exchange, count] : times) {
    PlannedExchange const& planned = all.plans.front().tensor.exchanges.at(exchange);
    Problem const& problem = planned.collective.problem;
    counted.push_back({exchange, problem.collective, count, problem.elements(), planned.element_bytes, {}});
    for (ShardPlan const& plan : all.plans) {
      PlannedExchange const& mine = plan.tensor.exchanges.at(exchange);
      Schedule const schedule = schedule_of(mine.collective, plan.layout.mesh, plan.layout.rank);
      counted.back().sent.push_back(static_cast<std::uint64_t>(count) *
                                    predict_traffic(schedule, mine.collective.problem.topology, mine.element_bytes));
    }
  }
  return counted;
}

std::string tensor_text(TensorRanks const& all) {
  auto const slices = options_of(all).slices;
  return title_text(all) + "\n" + picture_text(std::max(slices.ranks, slices.feature_parts), slices.feature_parts > 1) +
         "\n" + shapes_table(all) + parts_table(all) + pieces_text(all) + sums_text(all);
}

} // namespace trainstone
