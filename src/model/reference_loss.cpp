#include "model/reference_loss.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/reference/reference_product.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

namespace trainstone {

namespace {

using Index = std::int64_t;
using Table = std::vector<double>;

constexpr Index rows_at_a_time = 64; // of a weight, and of a head's scores

std::size_t to_size(Index count) { return static_cast<std::size_t>(count); }

/// Calls body(i) for all i of [0, count), on so many threads. The body does not throw.
template <class Body>
void for_each_task(int threads, Index count, Body const& body) {
  std::atomic<Index> next{0};
  auto const work = [&] {
    for (Index i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
}

/// Scores of one position: softmax over the first `seen`, zeros behind them.
void softmax(double* scores, Index seen, Index width) {
  double const maximum = *std::max_element(scores, scores + seen);
  for (Index u = 0; u < seen; ++u) scores[u] = std::exp(scores[u] - maximum);
  double const sum = std::accumulate(scores, scores + seen, 0.0);
  for (Index u = 0; u < seen; ++u) scores[u] /= sum;
  std::fill(scores + seen, scores + width, 0.0);
}

class ReferenceForward {
public:
  ReferenceForward(GptConfig const& config, ParameterValues const& values, std::span<std::int32_t const> tokens,
                   int threads)
      : m_config(config), m_table(config, 1), m_values(&values), m_threads(threads), m_positions(std::ssize(tokens)) {
    embed(tokens);
    for (Index block = 0; block < config.layers; ++block) run_block(block);
  }

  /// Of all positions.
  double loss(std::span<std::int32_t const> targets) const;

private:
  Table table(Index columns) const { return Table(to_size(m_positions * columns)); }

  Table read(ParameterTensor const& tensor, Index begin, Index count) const {
    std::vector<float> stored(to_size(count));
    (*m_values)(tensor, begin, stored);
    return Table(stored.begin(), stored.end());
  }

  void embed(std::span<std::int32_t const> tokens) {
    Index const channels = m_config.channels;
    ParameterTensor const &wte = m_table.find(Tensor::wte), &wpe = m_table.find(Tensor::wpe);
    m_stream = table(channels);
    for_each_task(m_threads, m_positions, [&](Index t) {
      Table const token = read(wte, tokens[to_size(t)] * channels, channels), place = read(wpe, t * channels, channels);
      std::ranges::transform(token, place, m_stream.begin() + t * channels, std::plus<>());
    });
  }

  Table normalized(Tensor gamma, Tensor beta, Index block) const {
    Table y = table(m_config.channels), mean = table(1), rstd = table(1);
    reference::layernorm_forward(m_stream, read(m_table.find(gamma, block), 0, m_config.channels),
                                 read(m_table.find(beta, block), 0, m_config.channels), y, mean, rstd);
    return y;
  }

  /// x W^T + bias, (P, rows of W), then changed value by value.
  template <class Change>
  Table linear(Table const& x, Tensor weight, Tensor bias, Index block, Change const& change) const {
    ParameterTensor const &w = m_table.find(weight, block), &b = m_table.find(bias, block);
    Table y = table(w.rows);
    for_each_task(m_threads, (w.rows + rows_at_a_time - 1) / rows_at_a_time, [&](Index task) {
      Index const begin = task * rows_at_a_time, count = std::min(rows_at_a_time, w.rows - begin);
      Table const rows = read(w, begin * w.columns, count * w.columns), shift = read(b, begin, count);
      reference::product_of_rows(m_positions, count, w.columns, x.data(), w.columns, rows.data(), w.columns,
                                 y.data() + begin, w.rows);
      for (Index t = 0; t < m_positions; ++t)
        for (Index j = 0; j < count; ++j) {
          double& value = y[to_size(t * w.rows + begin + j)];
          value = change(value + shift[to_size(j)]);
        }
    });
    return y;
  }
  Table linear(Table const& x, Tensor weight, Tensor bias, Index block) const {
    return linear(x, weight, bias, block, [](double value) { return value; });
  }

  void attend(Table const& qkv, Index head, Table& out) const;

  void run_block(Index block) {
    Table branch = linear(normalized(Tensor::ln1w, Tensor::ln1b, block), Tensor::qkvw, Tensor::qkvb, block);
    Table attended = table(m_config.channels);
    for_each_task(m_threads, m_config.heads, [&](Index head) { attend(branch, head, attended); });
    add_to_stream(linear(attended, Tensor::attprojw, Tensor::attprojb, block));
    branch = linear(normalized(Tensor::ln2w, Tensor::ln2b, block), Tensor::fcw, Tensor::fcb, block, reference::gelu);
    add_to_stream(linear(branch, Tensor::fcprojw, Tensor::fcprojb, block));
  }

  void add_to_stream(Table const& branch) { std::ranges::transform(m_stream, branch, m_stream.begin(), std::plus<>()); }

  GptConfig m_config;
  ParameterTable m_table;
  ParameterValues const* m_values;
  int m_threads;
  Index m_positions;
  Table m_stream; ///< (P, C), the residual stream
};

/// Causal attention of one head, some positions at a time. qkv (P, 3C), out (P, C).
void ReferenceForward::attend(Table const& qkv, Index head, Table& out) const {
  Index const size = m_config.head_size(), channels = m_config.channels;
  double const scale = 1 / std::sqrt(static_cast<double>(size));
  Table q = table(size), k = table(size), v_transposed = table(size);
  for (Index t = 0; t < m_positions; ++t)
    for (Index i = 0; i < size; ++i) {
      double const* const row = qkv.data() + t * 3 * channels + head * size + i;
      q[to_size(t * size + i)] = scale * row[0];
      k[to_size(t * size + i)] = row[channels];
      v_transposed[to_size(i * m_positions + t)] = row[2 * channels];
    }
  Table scores(to_size(rows_at_a_time * m_positions));
  for (Index begin = 0; begin < m_positions; begin += rows_at_a_time) {
    Index const rows = std::min(rows_at_a_time, m_positions - begin), width = begin + rows;
    reference::product_of_rows(rows, width, size, q.data() + begin * size, size, k.data(), size, scores.data(), width);
    for (Index t = 0; t < rows; ++t) softmax(scores.data() + t * width, begin + t + 1, width);
    reference::product_of_rows(rows, size, width, scores.data(), width, v_transposed.data(), m_positions,
                               out.data() + begin * channels + head * size, channels);
  }
}

/// The vocabulary in pieces: of each its largest logit and the sum of exponentials relative to that.
double ReferenceForward::loss(std::span<std::int32_t const> targets) const {
  ParameterTensor const& wte = m_table.find(Tensor::wte);
  Index const channels = m_config.channels, pieces = (m_config.vocab + rows_at_a_time - 1) / rows_at_a_time;
  Table const x = normalized(Tensor::lnfw, Tensor::lnfb, -1);
  Table maxima = table(pieces), sums = table(pieces), of_target = table(1);
  for_each_task(m_threads, pieces, [&](Index piece) {
    Index const begin = piece * rows_at_a_time, count = std::min(rows_at_a_time, m_config.vocab - begin);
    Table const rows = read(wte, begin * channels, count * channels);
    Table logits = table(count);
    reference::product_of_rows(m_positions, count, channels, x.data(), channels, rows.data(), channels, logits.data(),
                               count);
    for (Index t = 0; t < m_positions; ++t) {
      std::span<double const> const row = std::span(logits).subspan(to_size(t * count), to_size(count));
      double const maximum = *std::ranges::max_element(row);
      maxima[to_size(t * pieces + piece)] = maximum;
      for (double const logit : row) sums[to_size(t * pieces + piece)] += std::exp(logit - maximum);
      Index const target = targets[to_size(t)] - begin;
      if (0 <= target && target < count) of_target[to_size(t)] = row[to_size(target)];
    }
  });
  double total = 0;
  for (Index t = 0; t < m_positions; ++t) {
    double const* const row = maxima.data() + t * pieces;
    double const maximum = *std::max_element(row, row + pieces);
    double sum = 0;
    for (Index i = 0; i < pieces; ++i) sum += sums[to_size(t * pieces + i)] * std::exp(row[i] - maximum);
    total += maximum + std::log(sum) - of_target[to_size(t)];
  }
  return total / static_cast<double>(m_positions);
}

} // namespace

ParameterValues initial_values(std::uint64_t seed) {
  return [seed](ParameterTensor const& tensor, std::int64_t begin, std::span<float> out) {
    InitialValue const& initial = tensor.initial;
    NormalBlock normals{};
    std::int64_t known = -1; // the block that normals hold
    for (std::int64_t i = 0; i < std::ssize(out); ++i) {
      float& value = out[to_size(i)];
      value = static_cast<float>(initial.constant);
      if (begin + i >= initial.random_elements) continue;
      std::int64_t const counter = initial.first_counter + begin + i;
      if (counter / 4 != known) {
        known = counter / 4;
        normals = normal_block(seed, RandomStream::initial_values, static_cast<std::uint64_t>(known));
      }
      value = static_cast<float>(initial.deviation * normals.values[counter % 4]);
    }
  };
}

double reference_loss(GptConfig const& config, ParameterValues const& values, std::span<std::int32_t const> tokens,
                      std::span<std::int32_t const> targets, int threads) {
  require_valid(config);
  TRAINSTONE_REQUIRE(!tokens.empty() && tokens.size() == targets.size() && std::ssize(tokens) <= config.context,
                     "{} tokens and {} targets for a context of {}", tokens.size(), targets.size(), config.context);
  for (auto const& values_of : {tokens, targets})
    for (std::int32_t const token : values_of)
      TRAINSTONE_REQUIRE(0 <= token && token < config.vocab, "token {} is outside the vocabulary of {}", token,
                         config.vocab);
  return ReferenceForward(config, values, tokens, threads).loss(targets);
}

ReferenceLossWork reference_loss_work(GptConfig const& config, std::int64_t positions) {
  auto const p = static_cast<double>(positions), c = static_cast<double>(config.channels);
  double const weights = 12 * static_cast<double>(config.layers) * c * c + static_cast<double>(config.vocab) * c;
  return {2 * p * weights + 2 * static_cast<double>(config.layers) * p * p * c, weights + 2 * p * c};
}

double predict_reference_loss_seconds(ReferenceLossWork const& work, int threads) {
  constexpr Index rows = 256, depth = 1024, tried = 100000;
  Table const a(to_size(rows * depth), 1.0);
  Table c(to_size(rows * rows_at_a_time));
  std::vector<float> some(tried);
  ParameterTensor const tensor{"", Tensor::wte, -1, 0, 1, tried, 0, true, {0, 1, tried, 0}};
  SteadyTime const begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 8; ++i)
    reference::product_of_rows(rows, rows_at_a_time, depth, a.data(), depth, a.data(), depth, c.data(), rows_at_a_time);
  double const product = seconds_since(begin);
  initial_values(0)(tensor, 0, some);
  double const values = seconds_since(begin) - product;
  return (work.flops * product / (8.0 * 2 * rows * rows_at_a_time * depth) + work.random_values * values / tried) /
         threads;
}

double stream_error_bound(GptConfig const& config) {
  return std::sqrt(8 * static_cast<double>(config.layers) * static_cast<double>(config.channels)) * fp32_roundoff;
}

double reference_loss_bound(GptConfig const& config) {
  auto const channels = static_cast<double>(config.channels), vocab = static_cast<double>(config.vocab);
  constexpr double deviation = 0.02;
  double const loss =
      std::sqrt(2.0) * deviation * std::sqrt(channels) * stream_error_bound(config) + std::sqrt(vocab) * fp32_roundoff;
  return loss / std::log(vocab);
}

} // namespace trainstone
