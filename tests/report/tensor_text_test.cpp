// What the explanation of tensor ranks says: parts of tensors, exchanges, and the whole text.

#include "report/tensor_text.hpp"

#include "core/error.hpp"
#include "model/parameter_table.hpp"
#include "parallel/program/shard_traffic.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

/// By element of a whole tensor: how many ranks have it.
std::vector<Index> holders(TensorRanks const& all, Tensor tensor, ParameterTensor const& whole) {
  Index const width = whole.is_matrix ? whole.columns : 1;
  std::vector<Index> counts(static_cast<std::size_t>(whole.size()), 0);
  for (Rank rank = 0; rank < all.ranks(); ++rank) {
    TensorPart const part = held_part(all, tensor, rank);
    for (Range const& rows : part.rows)
      for (Range const& columns : part.columns)
        for (Index row = rows.begin; row < rows.end; ++row)
          for (Index column = columns.begin; column < columns.end; ++column)
            ++counts[static_cast<std::size_t>(row * width + column)];
  }
  return counts;
}

} // namespace

TEST_CASE("the parts of tensor ranks add up to whole tensors", "[report][tensor]") {
  Rank const ranks = GENERATE(1, 2, 3, 4, 8);
  GptConfig const odd{.layers = 2, .heads = 24, .channels = 72, .context = 5, .vocab = 50, .vocab_multiple = 1};
  for (GptConfig const& model : {small_model_of(ranks), odd}) {
    TensorRanks const all = tensor_ranks(model, ranks);
    REQUIRE(all.ranks() == ranks);
    for (int kind = 0; kind < tensor_kinds; ++kind) {
      auto const tensor = static_cast<Tensor>(kind);
      INFO(to_string(tensor) << " of " << ranks);
      Index const block = is_per_block(tensor) ? 0 : -1;
      ParameterTensor const& whole = all.whole.find(tensor, block);
      bool const is_cut = ranks > 1 && cut_of(tensor) != Split::Of::nothing;
      CHECK(holders(all, tensor, whole) ==
            std::vector<Index>(static_cast<std::size_t>(whole.size()), is_cut ? 1 : ranks));
      Index sum = 0;
      for (ParameterTable const& table : all.tables) sum += table.find(tensor, block).size();
      CHECK(sum == (is_cut ? 1 : ranks) * whole.size());
    }
  }
}

TEST_CASE("a rank has rows, columns or the rows of its heads", "[report][tensor]") {
  TensorRanks const all = tensor_ranks(small_model_of(4), 4); // 8 channels
  using Ranges = std::vector<Range>;
  CHECK(held_part(all, Tensor::wte, 1).rows == Ranges{{8, 16}});
  CHECK(held_part(all, Tensor::wte, 1).columns == Ranges{{0, 8}});
  CHECK(held_part(all, Tensor::qkvw, 3).rows == Ranges{{6, 8}, {14, 16}, {22, 24}});
  CHECK(held_part(all, Tensor::qkvb, 3).rows == Ranges{{6, 8}, {14, 16}, {22, 24}});
  CHECK(held_part(all, Tensor::attprojw, 2).rows == Ranges{{0, 8}});
  CHECK(held_part(all, Tensor::attprojw, 2).columns == Ranges{{4, 6}});
  CHECK(held_part(all, Tensor::fcprojw, 2).columns == Ranges{{16, 24}});
  CHECK(held_part(all, Tensor::fcprojb, 2).rows == Ranges{{0, 8}});
}

TEST_CASE("the explained exchanges are 4 L + 2 sums and two small ones, as the plan sends them", "[report][tensor]") {
  Rank const ranks = GENERATE(1, 2, 3, 4, 8);
  GptConfig const deep{.layers = 3, .heads = 24, .channels = 48, .context = 6, .vocab = 70};
  for (GptConfig const& model : {small_model_of(ranks), deep}) {
    TensorRanks const all = tensor_ranks(model, ranks);
    std::vector<CountedExchange> const counted = counted_exchanges(all);
    if (ranks == 1) {
      CHECK(counted.empty());
      continue;
    }
    REQUIRE(counted.size() == 3);
    CHECK(counted[0].exchange == SliceExchange::sum);
    CHECK(counted[0].times == 4 * model.layers + 2);
    CHECK(counted[0].values == model.context * model.channels);
    CHECK(counted[0].value_bytes == 4);
    CHECK(counted[1].times + counted[2].times == 2);
    CHECK(counted[1].values == model.context);
    CHECK(counted[2].values == 2 * model.context);
    for (std::size_t rank = 0; rank < all.plans.size(); ++rank) {
      Traffic explained, planned;
      for (CountedExchange const& one : counted) explained += one.sent[rank];
      for (TrafficRow const& row : step_traffic(all.plans[rank])) planned += row.traffic;
      CHECK(explained == planned);
    }
    CHECK_THAT(tensor_text(all), ContainsSubstring(fmt::format("\n{} sums = 4 L + 2", 4 * model.layers + 2)));
  }
}

TEST_CASE("tensor ranks that share positions bring together 10 times per block, as the plan sends it",
          "[report][tensor]") {
  Rank const ranks = GENERATE(2, 3, 4, 8);
  PositionsOfRanks const shared = PositionsOfRanks::shared;
  GptConfig const deep{.layers = 3, .heads = 24, .channels = 48, .context = 24, .vocab = 70};
  for (GptConfig const& model : {small_model_of(ranks, shared), deep}) {
    TensorRanks const all = tensor_ranks(model, ranks, shared);
    std::vector<CountedExchange> const counted = counted_exchanges(all);
    Index of_rows = 0;
    for (CountedExchange const& one : counted)
      if (one.values == model.context * model.channels) of_rows += one.times;
    CHECK(of_rows == 10 * model.layers + 4);
    for (std::size_t rank = 0; rank < all.plans.size(); ++rank) {
      Traffic explained, planned;
      for (CountedExchange const& one : counted) explained += one.sent[rank];
      for (TrafficRow const& row : step_traffic(all.plans[rank])) planned += row.traffic;
      CHECK(explained == planned);
    }
    CHECK_THAT(tensor_text(all),
               ContainsSubstring(fmt::format("Outside of them a rank has {} row", model.context / ranks)));
  }
}

TEST_CASE("tensor ranks that do not divide the heads, or the positions that they share, are refused",
          "[report][tensor]") {
  CHECK_THROWS_AS(tensor_ranks(small_model_of(4), 3), InputError);
  CHECK_NOTHROW(tensor_ranks(small_model_of(3), 3)); // 8 positions
  CHECK_THROWS_AS(tensor_ranks(small_model_of(3), 3, PositionsOfRanks::shared), InputError);
}

TEST_CASE("a rank of a grid has rows of one axis and columns of the other one", "[report][tensor][grid]") {
  PositionsOfRanks const on_all = PositionsOfRanks::all;
  TensorRanks const all = tensor_ranks(small_model_of(4, on_all, 2), 4, on_all, 2); // 8 channels, 2 heads
  CHECK(held_part(all, Tensor::qkvw, 3).rows == std::vector<Range>{{4, 8}, {12, 16}, {20, 24}});
  CHECK(held_part(all, Tensor::qkvw, 3).columns == std::vector<Range>{{4, 8}});
  CHECK(held_part(all, Tensor::qkvw, 1).columns == std::vector<Range>{{0, 4}});
  CHECK(held_part(all, Tensor::attprojw, 2).rows == std::vector<Range>{{4, 8}});
  CHECK(held_part(all, Tensor::attprojw, 2).columns == std::vector<Range>{{0, 4}});
  CHECK(held_part(all, Tensor::qkvb, 3).rows == std::vector<Range>{{4, 8}, {12, 16}, {20, 24}});
  CHECK(held_part(all, Tensor::ln1w, 3).rows == std::vector<Range>{{4, 8}});
  CHECK(held_part(all, Tensor::wpe, 2).columns == std::vector<Range>{{4, 8}});
  std::string const text = tensor_text(all);
  for (char const* const words :
       {"They form a grid: 2 share slices of every layer, 2 share the channels", "queries, keys and values",
        "hidden layer", "6 sums = 4 L + 2 for L = 1 block. A sum has n h/y = 8 x 4 values",
        "sums over the features here", "heads, columns"})
    CHECK_THAT(text, ContainsSubstring(words));
}

TEST_CASE("one tensor rank brings nothing together", "[report][tensor]") {
  std::string const text = tensor_text(tensor_ranks(small_model_of(1), 1));
  CHECK_THAT(text, ContainsSubstring("1 tensor rank has all of every layer\n"));
  CHECK_THAT(text, ContainsSubstring("Nothing is cut"));
  for (char const* const word : {"together:", "starts", "waits", "sums ="}) CHECK(text.find(word) == std::string::npos);
}

TEST_CASE("the explanation of two tensor ranks", "[report][tensor]") {
  CHECK(tensor_text(tensor_ranks(small_model_of(2), 2)) == R"(2 tensor ranks share every layer and work on the same data
The example is a GPT with 1 block, 2 heads, 4 channels, 8 positions and a vocabulary of 16.
A micro-batch is 1 sample, which has 8 rows.

A layer computes y = x W^T. W has a row for every output and a column for every input. Slides that write
y = W^T x have the transpose of this W. There are two ways to cut W:
  along its outputs (rows of W):    y = [x W_0^T | x W_1^T]    parts of y lie side by side, nothing is summed
  along its inputs (columns of W):  y = x_0 W_0^T + x_1 W_1^T  every rank has a part of a sum of y
Half a block cuts its first product along the outputs and its last one along the inputs. What lies between
them stays on its rank. So half a block needs one sum forward and one sum backward.

Tensors. Those from ln1w to fcprojb exist in every block.
  tensor    whole    cut      on a rank
  wte       (16, 4)  rows     (8, 4)
  wpe       (8, 4)   not cut  (8, 4)
  ln1w      (4)      not cut  (4)
  ln1b      (4)      not cut  (4)
  qkvw      (12, 4)  heads    (6, 4)
  qkvb      (12)     heads    (6)
  attprojw  (4, 4)   columns  (4, 2)
  attprojb  (4)      not cut  (4)
  ln2w      (4)      not cut  (4)
  ln2b      (4)      not cut  (4)
  fcw       (16, 4)  rows     (8, 4)
  fcb       (16)     rows     (8)
  fcprojw   (4, 16)  columns  (4, 8)
  fcprojb   (4)      not cut  (4)
  lnfw      (4)      not cut  (4)
  lnfb      (4)      not cut  (4)

What each rank has of the tensors that are cut. All ranks have the others, and update them alike. Elements of a vector
count as rows. A rank has the rows of its heads among those of queries, of keys and of values. It looks up the tokens
that are in its rows of wte, and has zeros for all others.
          wte rows  qkvw, qkvb rows         attprojw columns  fcw, fcb rows  fcprojw columns
  rank 0  [0, 8)    [0, 2) [4, 6) [8, 10)   [0, 2)            [0, 8)         [0, 8)
  rank 1  [8, 16)   [2, 4) [6, 8) [10, 12)  [2, 4)            [8, 16)        [8, 16)

A micro-batch on a rank, piece by piece. "together" says what all ranks bring together before the next piece.
"starts" means that a rank computes the next piece meanwhile.
forward embed
  0  look up the rows of wte that are here
     together: sum over slices, 32 values of 4 bytes = 128 bytes
  1  add rows of wpe
forward attention 0
  0  layer norm ln1w, ln1b; product with qkvw, qkvb; attention; product with attprojw
     together: sum over slices, 32 values of 4 bytes = 128 bytes
  1  add attprojb and the residual stream; layer norm ln2w, ln2b
forward mlp 0
  0  product with fcw, fcb; GELU; product with fcprojw
     together: sum over slices, 32 values of 4 bytes = 128 bytes
  1  add fcprojb and the residual stream
forward head
  0  layer norm lnfw, lnfb; product with wte
loss
  0  maximum of the logits that are here
     together: maximum of logits, 8 values of 4 bytes = 32 bytes
  1  sums of their exponentials; the target's logit
     together: sums of logits, 16 values of 8 bytes = 128 bytes
  2  losses and the gradient of the logits that are here
backward head
  0  gradient of the input of wte
     starts: sum over slices, 32 values of 4 bytes = 128 bytes
  1  gradient of wte
     waits for: sum over slices
  2  layer norm backward, gradients of lnfw, lnfb
backward mlp 0
  0  gradients of fcprojw, fcprojb
  1  gradient of the input of fcprojw; GELU backward; gradient of the input of fcw
     starts: sum over slices, 32 values of 4 bytes = 128 bytes
  2  gradients of fcw, fcb
     waits for: sum over slices
  3  layer norm backward, gradients of ln2w, ln2b
backward attention 0
  0  gradients of attprojw, attprojb
  1  gradient of the input of attprojw; attention backward; gradient of the input of qkvw
     starts: sum over slices, 32 values of 4 bytes = 128 bytes
  2  gradients of qkvw, qkvb
     waits for: sum over slices
  3  layer norm backward, gradients of ln1w, ln1b
backward embed
  0  gradients of wte, wpe

  together in a micro-batch  collective  its key                times  values  bytes of all times  a rank sends
  sum over slices            all_reduce  comm.tensor_allreduce  6      32      768                 768 bytes in 12 messages
  maximum of logits          all_reduce  comm.tensor_allreduce  1      8       32                  32 bytes in 2 messages
  sums of logits             all_reduce  comm.tensor_allreduce  1      16      128                 128 bytes in 2 messages
6 sums = 4 L + 2 for L = 1 block. A sum has n h = 8 x 4 values: n rows of h channels.
The loss needs small ones: 1 value and 2 values per row, however many channels there are.
)");
}
