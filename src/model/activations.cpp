#include "model/activations.hpp"

#include "core/stored.hpp"

namespace trainstone {

namespace {

/// Collects names and sizes.
class Planner {
public:
  template <class T>
  void vector(std::string const& name, Vector<T>&, Index count) {
    m_plan.push_back(planned<T>(name, count));
  }
  template <class T>
  void matrix(std::string const& name, Matrix<T>&, Index rows, Index columns) {
    m_plan.push_back(planned<T>(name, rows * columns));
  }
  template <class T>
  void tensor4(std::string const& name, Tensor4<T>&, Index i, Index j, Index k, Index l) {
    m_plan.push_back(planned<T>(name, i * j * k * l));
  }
  std::vector<PlannedTensor> take() { return std::move(m_plan); }

private:
  std::vector<PlannedTensor> m_plan;
};

/// Binds Views to the arena's memory.
class Binder {
public:
  explicit Binder(Arena& arena) : m_arena(arena) {}
  template <class T>
  void vector(std::string const& name, Vector<T>& view, Index count) {
    view = m_arena.vector<T>(name, count);
  }
  template <class T>
  void matrix(std::string const& name, Matrix<T>& view, Index rows, Index columns) {
    view = m_arena.matrix<T>(name, rows, columns);
  }
  template <class T>
  void tensor4(std::string const& name, Tensor4<T>& view, Index i, Index j, Index k, Index l) {
    auto const extent = [](Index value) { return static_cast<std::size_t>(value); };
    view = Tensor4<T>(m_arena.vector<T>(name, i * j * k * l).data(), extent(i), extent(j), extent(k), extent(l));
  }

private:
  Arena& m_arena;
};

template <class T, class Visitor>
void describe_block(BlockActivationsOf<T>& block, std::string const& prefix, GptConfig const& config,
                    GptOptions const& options, MicroBatchShape shape, Visitor& visitor) {
  Index const n = shape.rows(), c = config.channels;
  auto const pairs = [&](std::string const& name, auto& view) {
    visitor.tensor4(prefix + name, view, shape.batch, config.heads, shape.sequence, shape.sequence);
  };
  bool const materialized = options.attention == AttentionKind::materialized;
  visitor.matrix(prefix + "ln1", block.ln1, n, c);
  visitor.vector(prefix + "ln1 mean", block.ln1_mean, n);
  visitor.vector(prefix + "ln1 rstd", block.ln1_rstd, n);
  visitor.matrix(prefix + "qkv", block.qkv, n, 3 * c);
  if (materialized)
    pairs("probabilities", block.probabilities);
  else
    visitor.vector(prefix + "log-sum-exp", block.log_sum_exp, n * config.heads);
  if (materialized && options.keeps_masks()) pairs("attention mask", block.attention_mask);
  visitor.matrix(prefix + "attention", block.attention, n, c);
  visitor.matrix(prefix + "middle", block.middle, n, c);
  visitor.matrix(prefix + "ln2", block.ln2, n, c);
  visitor.vector(prefix + "ln2 mean", block.ln2_mean, n);
  visitor.vector(prefix + "ln2 rstd", block.ln2_rstd, n);
  visitor.matrix(prefix + "fc", block.fc, n, 4 * c);
  visitor.matrix(prefix + "gelu", block.gelu, n, 4 * c);
  visitor.matrix(prefix + "output", block.output, n, c);
  if (!options.keeps_masks()) return;
  visitor.matrix(prefix + "attproj mask", block.attproj_mask, n, c);
  visitor.matrix(prefix + "fcproj mask", block.fcproj_mask, n, c);
}

template <class T, class Visitor>
void describe(ActivationsOf<T>& all, GptConfig const& config, GptOptions const& options, MicroBatchShape shape,
              Visitor& visitor) {
  Index const n = shape.rows(), c = config.channels;
  visitor.matrix("embedded", all.embedded, n, c);
  if (options.keeps_masks()) visitor.matrix("embedded mask", all.embedded_mask, n, c);
  all.blocks.resize(static_cast<std::size_t>(config.layers));
  for (std::size_t i = 0; i < all.blocks.size(); ++i)
    describe_block(all.blocks[i], "block " + std::to_string(i) + " ", config, options, shape, visitor);
  visitor.matrix("lnf", all.lnf, n, c);
  visitor.vector("lnf mean", all.lnf_mean, n);
  visitor.vector("lnf rstd", all.lnf_rstd, n);
  visitor.matrix("logits", all.logits, n, config.padded_vocab());
  visitor.vector("losses", all.losses, n);
  visitor.matrix("branch", all.branch, n, c);
  visitor.matrix("d_stream", all.d_stream, n, c);
  visitor.matrix("d_qkv", all.d_qkv, n, 3 * c);
  visitor.matrix("d_fc", all.d_fc, n, 4 * c);
}

} // namespace

std::vector<PlannedTensor> activation_plan(GptConfig const& config, MicroBatchShape shape, Storage storage,
                                           GptOptions const& options) {
  return with_storage(storage, [&]<class T>() {
    ActivationsOf<T> unbound;
    Planner planner;
    describe(unbound, config, options, shape, planner);
    return planner.take();
  });
}

Activations bind_activations(GptConfig const& config, MicroBatchShape shape, Arena& arena, Storage storage,
                             GptOptions const& options) {
  return with_storage(storage, [&]<class T>() -> Activations {
    ActivationsOf<T> all;
    Binder binder(arena);
    describe(all, config, options, shape, binder);
    return all;
  });
}

} // namespace trainstone
