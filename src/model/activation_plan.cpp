#include "model/activation_plan.hpp"

#include "core/error.hpp"
#include "model/part_lists.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

namespace trainstone {

namespace {

constexpr std::array<char const*, activation_kinds> names{"input",         "embedded",
                                                          "embedded mask", "ln1",
                                                          "ln1 mean",      "ln1 rstd",
                                                          "qkv",           "probabilities",
                                                          "log-sum-exp",   "attention mask",
                                                          "attention",     "middle",
                                                          "ln2",           "ln2 mean",
                                                          "ln2 rstd",      "fc",
                                                          "gelu",          "output",
                                                          "attproj mask",  "fcproj mask",
                                                          "lnf",           "lnf mean",
                                                          "lnf rstd",      "logits",
                                                          "losses",        "loss maximum",
                                                          "loss sums",     "norm sums",
                                                          "feature sums",  "partial",
                                                          "gathered",      "gathered again",
                                                          "normed",        "branch",
                                                          "d_stream",      "d_qkv",
                                                          "scratch",       "d_fc"};

PlannedTensor planned_activation(std::string const& name, Activation what, Storage storage, Index elements) {
  if (is_mask(what)) return planned<std::uint8_t>(name, elements);
  if (is_fp64(what)) return planned<double>(name, elements);
  return planned(storage, name, elements);
}

// Named, because nvcc puts parentheses around a field's declarator, and g++ warns of them.
using CopiesMember = Index ActivationCopies::*;
using BuffersMember = Index ActivationBuffers::*;

/// How an activation that is there several times is counted and chosen.
struct CopiedBy {
  char const* name;
  CopiesMember count;
  BuffersMember number;
};

constexpr CopiedBy by_slot{"slot", &ActivationCopies::slots, &ActivationBuffers::slot};
constexpr CopiedBy by_input{"input", &ActivationCopies::inputs, &ActivationBuffers::input};
constexpr CopiedBy by_gradient{"gradient", &ActivationCopies::gradients, &ActivationBuffers::gradient};

/// Null if it is there once.
CopiedBy const* copied_by(PlacedActivation const& placed) {
  switch (placed.what) {
  case Activation::input: return &by_input;
  case Activation::d_stream: return &by_gradient;
  case Activation::embedded:
  case Activation::embedded_mask: return &by_slot;
  default: return placed.block >= 0 ? &by_slot : nullptr;
  }
}

/// By the parts of a stage.
std::set<Activation> written_by(ModelStage const& stage, GptOptions const& options) {
  std::set<PartKind> kinds;
  for (Part const part : parts(stage)) kinds.insert(part.kind);
  std::set<Activation> written;
  for (PartKind const kind : kinds) written.merge(activations_written(kind, options));
  return written;
}

} // namespace

MicroBatchShape own_rows(MicroBatchShape shape, GptOptions const& options) {
  if (options.shares_positions()) shape.sequence /= options.slices.ranks;
  return shape;
}

Index first_position(MicroBatchShape shape, GptOptions const& options) {
  return options.shares_positions() ? options.slices.rank * own_rows(shape, options).sequence : 0;
}

std::string to_string(PlacedActivation const& placed) {
  std::string prefix;
  if (placed.block == PlacedActivation::recomputed) prefix = "recomputed ";
  if (placed.block >= 0) prefix = "block " + std::to_string(placed.block) + " ";
  return prefix + names[static_cast<std::size_t>(placed.what)];
}

Storage storage_of(Activation what, GptOptions const& options, Storage values) {
  bool const wide = is_statistic(what) || (what == Activation::partial && options.sums_wide());
  return wide ? Storage::fp32 : values;
}

bool sums_lie_apart(GptOptions const& options, Storage values) {
  return storage_of(Activation::partial, options, values) != values || options.shares_positions();
}

/// Partial sums wait like the digits of a binary number. The longest of them lies where the sum belongs, unless sums
/// lie apart.
Index matrices_of(Activation what, GptOptions const& options, Storage values) {
  Index const slices = options.slices.count();
  if (what != Activation::partial) return is_cut(what) ? slices : 1;
  return static_cast<Index>(std::bit_width(static_cast<std::uint64_t>(slices))) -
         (sums_lie_apart(options, values) ? 0 : 1);
}

AttentionNeed attention_need(GptConfig const& config, MicroBatchShape shape, Storage values,
                             GptOptions const& options) {
  return {.batch = shape.batch,
          .sequence = shape.sequence,
          .heads = config.heads / options.slices.blocks,
          .head_size = config.head_size(),
          .storage = values,
          .drops = options.dropout > 0};
}

Extents extents_of(Activation what, GptConfig const& config, MicroBatchShape shape, Storage values,
                   GptOptions const& options) {
  Index const n = shape.rows(), c = config.channels, blocks = options.slices.blocks, heads = config.heads / blocks;
  Index const own_channels = c / options.slices.feature_parts;
  Index const in_loss = n / options.loss_chunks; // rows
  Index const own = own_rows(shape, options).rows();
  bool const cuts_positions = shape.sequence % blocks == 0;
  switch (what) {
  case Activation::log_sum_exp: return {n * heads, 1};
  case Activation::scratch: {
    AttentionNeed const need = attention_need(config, shape, values, options);
    auto const of = [&](AttentionPass pass) { return attention_scratch(options.attention_provider, pass, need); };
    return {std::max(of(AttentionPass::forward), of(AttentionPass::backward)), 1};
  }
  case Activation::loss_maximum: return {in_loss, 1};
  case Activation::loss_sums: return {options.slices.count(), 2 * in_loss};
  case Activation::norm_sums:
    return {options.shares_positions() ? options.slices.count() : cuts_positions ? blocks : 1, 2 * own_channels};
  case Activation::feature_sums: return {n, 2};
  case Activation::probabilities:
  case Activation::attention_mask: return {n * heads, shape.sequence};
  case Activation::qkv:
  case Activation::d_qkv: return {n, 3 * c / blocks};
  case Activation::attention:
  case Activation::d_attention: return {n, c / blocks};
  case Activation::fc:
  case Activation::gelu:
  case Activation::d_fc: return {n, 4 * c / blocks};
  case Activation::logits: return {in_loss, config.padded_vocab() / blocks};
  case Activation::ln1:
  case Activation::ln2: return {options.keeps_gathered() ? n : own, own_channels};
  case Activation::lnf:
  case Activation::partial:
  case Activation::gathered:
  case Activation::gathered_again: return {n, own_channels};
  case Activation::losses: return {n, 1};
  default: return {own, is_statistic(what) ? 1 : own_channels};
  }
}

ActivationPlaces::ActivationPlaces(ModelStage stage, GptOptions const& options, ActivationCopies const& copies)
    : m_stage(std::move(stage)), m_copies(copies), m_options(options), m_written(written_by(m_stage, options)) {
  std::size_t begin = 0;
  for (Index const size : blocks_by_chunk(m_stage)) {
    bool const embed = m_stage.embed && m_chunk_ends.empty();
    PlacedActivation stream{embed ? Activation::embedded : Activation::input, PlacedActivation::of_model};
    for (std::size_t position = 0; position < static_cast<std::size_t>(size); ++position) {
      add_block(m_stage.blocks[begin + position], position, stream, options);
      stream = {Activation::output, m_blocks.back().place};
    }
    m_chunk_ends.push_back(stream);
    begin += static_cast<std::size_t>(size);
  }
}

std::shared_ptr<ActivationPlaces::Flags const> const& ActivationPlaces::way(Recompute how, GptOptions const& options) {
  std::shared_ptr<Flags const>& way = m_ways[how];
  if (!way) {
    Flags flags{};
    for (Activation const what : recomputed(how, options)) flags[static_cast<std::size_t>(what)] = true;
    way = std::make_shared<Flags const>(flags);
  }
  return way;
}

void ActivationPlaces::add_block(Index block, std::size_t position, PlacedActivation const& stream,
                                 GptOptions const& options) {
  std::shared_ptr<Flags const> const& again = way(options.recompute_of(block), options);
  if (position == m_shared.size()) m_shared.push_back({block, *again});
  SharedPlace& shared = m_shared[position];
  for (std::size_t what = 0; what < shared.unused.size(); ++what) shared.unused[what] &= (*again)[what];
  m_blocks.push_back({shared.block, stream, again});
}

std::size_t ActivationPlaces::index_of(Index block) const {
  auto const found = std::ranges::lower_bound(m_stage.blocks, block);
  TRAINSTONE_REQUIRE(found != m_stage.blocks.end() && *found == block, "block {} is not here", block);
  return static_cast<std::size_t>(found - m_stage.blocks.begin());
}

PlacedActivation ActivationPlaces::place_of(Activation what, Index block) const {
  if (what == Activation::d_attention) return {Activation::d_fc, PlacedActivation::of_model};
  if (what != Activation::stream && !is_of_block(what)) return {what, PlacedActivation::of_model};
  bool const of_head = m_blocks.empty() || block > m_stage.blocks.back();
  if (what == Activation::stream && of_head) return m_chunk_ends.back();
  PlacedBlock const& placed = m_blocks[index_of(block)];
  if (what == Activation::stream) return placed.stream;
  return {what, (*placed.recomputed)[static_cast<std::size_t>(what)] ? PlacedActivation::recomputed : placed.place};
}

PlacedActivation ActivationPlaces::operator()(Activation what, Index block, ActivationBuffers const& buffers,
                                              Index number) const {
  PlacedActivation placed = place_of(what, block);
  placed.number = number;
  if (CopiedBy const* const by = copied_by(placed)) {
    placed.copy = buffers.*by->number;
    TRAINSTONE_REQUIRE(0 <= placed.copy && placed.copy < m_copies.*by->count, "{}: there is no {} {} among {}",
                       to_string(placed), by->name, placed.copy, m_copies.*by->count);
  }
  return placed;
}

PlacedActivation ActivationPlaces::chunk_output(Index chunk) const {
  PlacedActivation const& end = m_chunk_ends.at(static_cast<std::size_t>(chunk));
  TRAINSTONE_REQUIRE(end.what != Activation::input, "chunk {} has neither a block nor embed", chunk);
  return end;
}

std::vector<PlacedActivation> ActivationPlaces::all(Storage values) const {
  std::vector<PlacedActivation> placed;
  auto const add_matrices = [&](PlacedActivation place) {
    for (; place.number < matrices_of(place.what, m_options, values); ++place.number) placed.push_back(place);
  };
  auto const add = [&](Activation first, Activation last, PlacedActivation const& place, Flags const& unused) {
    for (auto what = m_written.lower_bound(first); what != m_written.end() && *what <= last; ++what)
      if (!unused[static_cast<std::size_t>(*what)]) add_matrices({*what, place.block, place.copy});
  };
  auto const add_once = [&](Activation first, Activation last, Index copy) {
    add(first, last, {first, PlacedActivation::of_model, copy}, {});
  };
  for (Index number = 0; number < m_copies.inputs; ++number)
    placed.push_back({Activation::input, PlacedActivation::of_model, number});
  for (Index slot = 0; slot < m_copies.slots; ++slot) {
    add_once(Activation::embedded, Activation::embedded_mask, slot);
    for (SharedPlace const& shared : m_shared)
      add(Activation::ln1, Activation::fcproj_mask, {Activation::ln1, shared.block, slot}, shared.unused);
  }
  for (Activation const what : m_written) {
    auto const has = [&](auto const& way) { return (*way.second)[static_cast<std::size_t>(what)]; };
    if (is_of_block(what) && std::ranges::any_of(m_ways, has)) add_matrices({what, PlacedActivation::recomputed});
  }
  add_once(Activation::lnf, Activation::branch, 0);
  for (Index number = 0; number < m_copies.gradients; ++number)
    placed.push_back({Activation::d_stream, PlacedActivation::of_model, number});
  add_once(Activation::d_qkv, Activation::d_fc, 0);
  return placed;
}

std::string ActivationPlaces::name(PlacedActivation const& placed) const {
  CopiedBy const* const by = copied_by(placed);
  std::string name = to_string(placed);
  if (by != nullptr && m_copies.*by->count > 1) {
    std::string const copy = fmt::format("{} {}", by->name, placed.copy);
    name = placed.what == Activation::input ? copy : copy + " " + name;
  }
  if (placed.what == Activation::partial) return fmt::format("{} {}", name, placed.number);
  if (!is_cut(placed.what) || !m_options.slices.cuts()) return name;
  return fmt::format("{}, slice {}", name, m_options.slices.first() + placed.number);
}

std::vector<PlannedTensor> activation_plan(GptConfig const& config, MicroBatchShape shape, Storage storage,
                                           GptOptions const& options) {
  return activation_plan(config, shape, storage, options, ModelStage::whole(config));
}

ExchangedActivations::ExchangedActivations(GptOptions const& options, Storage values) {
  for (SliceExchange const exchange : slice_exchanges)
    if (happens(exchange, options)) m_exchanged.push_back(exchanged_activation(exchange, options, values));
}

bool ExchangedActivations::has(ActivationSet set, PlacedActivation const& placed) const {
  if (set == ActivationSet::all) return true;
  bool const is_exchanged = std::ranges::find(m_exchanged, placed) != m_exchanged.end();
  return is_exchanged == (set == ActivationSet::exchanged);
}

std::vector<PlannedTensor> activation_plan(GptConfig const& config, MicroBatchShape shape, Storage storage,
                                           GptOptions const& options, ModelStage const& stage,
                                           ActivationCopies const& copies, ActivationSet set) {
  ActivationPlaces const places(stage, options, copies);
  ExchangedActivations const exchanged(options, storage);
  std::vector<PlannedTensor> plan;
  for (PlacedActivation const& placed : places.all(storage))
    if (exchanged.has(set, placed))
      plan.push_back(planned_activation(places.name(placed), placed.what, storage_of(placed.what, options, storage),
                                        extents_of(placed.what, config, shape, storage, options).elements()));
  return plan;
}

std::uint64_t activation_bytes(GptConfig const& config, MicroBatchShape shape, Storage storage,
                               GptOptions const& options, ModelStage const& stage, ActivationCopies const& copies,
                               ActivationSet set) {
  std::array<std::optional<std::uint64_t>, activation_kinds> known; // of one of each kind
  ExchangedActivations const exchanged(options, storage);
  auto const with_slots = [&](Index slots) {
    ActivationCopies some = copies;
    some.slots = slots;
    std::uint64_t sum = 0;
    for (PlacedActivation const& placed : ActivationPlaces(stage, options, some).all(storage)) {
      if (!exchanged.has(set, placed)) continue;
      std::optional<std::uint64_t>& bytes = known[static_cast<std::size_t>(placed.what)];
      if (!bytes)
        bytes = planned_activation("", placed.what, storage_of(placed.what, options, storage),
                                   extents_of(placed.what, config, shape, storage, options).elements())
                    .bytes;
      sum += *bytes;
    }
    return sum;
  };
  if (copies.slots <= 2) return with_slots(copies.slots);
  std::uint64_t const one = with_slots(1), two = with_slots(2); // all further slots are like the second one
  return one + static_cast<std::uint64_t>(copies.slots - 1) * (two - one);
}

} // namespace trainstone
