// Plain attention: forward a team per query, whose scores lie in the team's scratch; backward a team per head, which
// takes its queries one after the other. Materialised attention keeps the probabilities, flash attention a number per
// query from which they are computed again: all else is the same.

#include "kernel_cases/plain_kernels.hpp"

#include "core/types.hpp"
#include "kernels/common/attention_shape.hpp"
#include "kernels/common/instantiate.hpp"

namespace trainstone::plain {

namespace {

using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
using Team = Policy::member_type;
template <class Type>
using Scratch = Kokkos::View<Type, ExecutionSpace::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Where a head's q, k and v are in qkv.
struct Head {
  Index b, h, sequence, size, channels;

  KOKKOS_INLINE_FUNCTION Index row(Index t) const { return b * sequence + t; }
  KOKKOS_INLINE_FUNCTION Index q(Index d) const { return h * size + d; }
  KOKKOS_INLINE_FUNCTION Index k(Index d) const { return channels + q(d); }
  KOKKOS_INLINE_FUNCTION Index v(Index d) const { return 2 * channels + q(d); }
  KOKKOS_INLINE_FUNCTION float scale() const { return 1.0F / Kokkos::sqrt(static_cast<float>(size)); }

  template <class T>
  KOKKOS_INLINE_FUNCTION float score(Matrix<T const> const& qkv, Index t, Index u) const {
    float sum = 0;
    for (Index d = 0; d < size; ++d) sum += to_float(qkv(row(t), q(d))) * to_float(qkv(row(u), k(d)));
    return sum * scale();
  }
};

/// keep(team, b, h, t, scores, largest, sum) stores what backward needs of a query.
template <class T, class Keep>
void forward(ExecutionSpace const& exec, Impl::AttentionShape const& shape, Matrix<T const> const& qkv,
             Matrix<T> const& out, Keep const& keep) {
  Index const queries = shape.batch * shape.heads * shape.sequence, sequence = shape.sequence;
  std::size_t const bytes = Scratch<float*>::shmem_size(static_cast<std::size_t>(sequence));
  auto const policy = Policy(exec, static_cast<int>(queries), Kokkos::AUTO).set_scratch_size(1, Kokkos::PerTeam(bytes));
  Kokkos::parallel_for(
      "trainstone::plain::attention_forward", policy, KOKKOS_LAMBDA(Team const& team) {
        Index const t = team.league_rank() % sequence, of_head = team.league_rank() / sequence;
        Head const head{of_head / shape.heads, of_head % shape.heads, sequence, shape.head_size, shape.channels()};
        Scratch<float*> const scores(team.team_scratch(1), static_cast<std::size_t>(sequence));
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, t + 1), [&](Index u) { scores(u) = head.score(qkv, t, u); });
        team.team_barrier();
        float largest = 0, sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, t + 1), [&](Index u, float& most) { most = Kokkos::fmax(most, scores(u)); },
            Kokkos::Max<float>(largest));
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, t + 1),
            [&](Index u, float& total) {
              scores(u) = Kokkos::exp(scores(u) - largest);
              total += scores(u);
            },
            sum);
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, head.size), [&](Index d) {
          float value = 0;
          for (Index u = 0; u <= t; ++u) value += scores(u) * to_float(qkv(head.row(u), head.v(d)));
          out(head.row(t), head.q(d)) = from_float<T>(value / sum);
        });
        keep(team, head, t, scores, largest, sum);
      });
}

template <class T>
struct KeepProbabilities {
  Tensor4<T> probabilities;

  KOKKOS_FUNCTION void operator()(Team const& team, Head const& head, Index t, Scratch<float*> const& exponentials,
                                  float /*largest*/, float sum) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, head.sequence), [&](Index u) {
      probabilities(head.b, head.h, t, u) = from_float<T>(u <= t ? exponentials(u) / sum : 0.0F);
    });
  }
};

struct KeepLogSumExp {
  Vector<float> log_sum_exp;
  Index heads;

  KOKKOS_FUNCTION void operator()(Team const& team, Head const& head, Index t, Scratch<float*> const& /*exponentials*/,
                                  float largest, float sum) const {
    Kokkos::single(Kokkos::PerTeam(team),
                   [&] { log_sum_exp((head.b * heads + head.h) * head.sequence + t) = largest + Kokkos::log(sum); });
  }
};

template <class T>
struct KeptProbabilities {
  Tensor4<T const> probabilities;

  KOKKOS_FUNCTION float operator()(Matrix<T const> const& /*qkv*/, Head const& head, Index t, Index u) const {
    return to_float(probabilities(head.b, head.h, t, u));
  }
};

template <class T>
struct RecomputedProbabilities {
  Vector<float const> log_sum_exp;
  Index heads;

  KOKKOS_FUNCTION float operator()(Matrix<T const> const& qkv, Head const& head, Index t, Index u) const {
    return Kokkos::exp(head.score(qkv, t, u) - log_sum_exp((head.b * heads + head.h) * head.sequence + t));
  }
};

/// The gradients of keys and values add up in fp32 in the team's scratch.
template <class T, class Probability>
void backward(ExecutionSpace const& exec, Impl::AttentionShape const& shape, Matrix<T const> const& qkv,
              Probability const& probability, Matrix<T const> const& d_out, Matrix<T> const& d_qkv) {
  Index const sequence = shape.sequence;
  auto const rows = static_cast<std::size_t>(sequence), columns = static_cast<std::size_t>(shape.head_size);
  std::size_t const bytes = 2 * Scratch<float*>::shmem_size(rows) + 2 * Scratch<float**>::shmem_size(rows, columns);
  auto const policy = Policy(exec, static_cast<int>(shape.batch * shape.heads), Kokkos::AUTO)
                          .set_scratch_size(1, Kokkos::PerTeam(bytes));
  Kokkos::parallel_for(
      "trainstone::plain::attention_backward", policy, KOKKOS_LAMBDA(Team const& team) {
        Head const head{team.league_rank() / shape.heads, team.league_rank() % shape.heads, sequence, shape.head_size,
                        shape.channels()};
        Scratch<float*> const p(team.team_scratch(1), rows), d_score(team.team_scratch(1), rows);
        Scratch<float**> const d_k(team.team_scratch(1), rows, columns), d_v(team.team_scratch(1), rows, columns);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, sequence), [&](Index u) {
          for (Index d = 0; d < head.size; ++d) d_k(u, d) = d_v(u, d) = 0;
        });
        for (Index t = 0; t < sequence; ++t) {
          float mean = 0;
          team.team_barrier();
          Kokkos::parallel_reduce(
              Kokkos::TeamThreadRange(team, t + 1),
              [&](Index u, float& total) {
                float d_p = 0;
                for (Index d = 0; d < head.size; ++d)
                  d_p += to_float(d_out(head.row(t), head.q(d))) * to_float(qkv(head.row(u), head.v(d)));
                p(u) = probability(qkv, head, t, u);
                d_score(u) = d_p;
                total += p(u) * d_p;
              },
              mean);
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, t + 1), [&](Index u) {
            d_score(u) = p(u) * (d_score(u) - mean) * head.scale();
            for (Index d = 0; d < head.size; ++d) {
              d_k(u, d) += d_score(u) * to_float(qkv(head.row(t), head.q(d)));
              d_v(u, d) += p(u) * to_float(d_out(head.row(t), head.q(d)));
            }
          });
          team.team_barrier();
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, head.size), [&](Index d) {
            float d_q = 0;
            for (Index u = 0; u <= t; ++u) d_q += d_score(u) * to_float(qkv(head.row(u), head.k(d)));
            d_qkv(head.row(t), head.q(d)) = from_float<T>(d_q);
          });
        }
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, sequence), [&](Index u) {
          for (Index d = 0; d < head.size; ++d) {
            d_qkv(head.row(u), head.k(d)) = from_float<T>(d_k(u, d));
            d_qkv(head.row(u), head.v(d)) = from_float<T>(d_v(u, d));
          }
        });
      });
}

template <class T>
Impl::AttentionShape shape_of(Matrix<T const> const& qkv, Index batch, Index heads) {
  return Impl::attention_shape("plain attention", batch, heads, static_cast<Index>(qkv.extent(0)) / batch,
                               static_cast<Index>(qkv.extent(1)) / 3);
}

} // namespace

template <class T>
void attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index heads, Tensor4<T> probabilities,
                       Matrix<T> out) {
  forward<T>(exec, shape_of(qkv, static_cast<Index>(probabilities.extent(0)), heads), qkv, out,
             KeepProbabilities<T>{probabilities});
}

template <class T>
void attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Tensor4<T const> probabilities,
                        Matrix<T const> d_out, Matrix<T> d_qkv) {
  auto const batch = static_cast<Index>(probabilities.extent(0)), heads = static_cast<Index>(probabilities.extent(1));
  backward<T>(exec, shape_of(qkv, batch, heads), qkv, KeptProbabilities<T>{probabilities}, d_out, d_qkv);
}

template <class T>
void flash_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                             Vector<float> log_sum_exp, Matrix<T> out) {
  forward<T>(exec, shape_of(qkv, batch, heads), qkv, out, KeepLogSumExp{log_sum_exp, heads});
}

template <class T>
void flash_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Vector<float const> log_sum_exp, Matrix<T const> d_out, Matrix<T> d_qkv) {
  backward<T>(exec, shape_of(qkv, batch, heads), qkv, RecomputedProbabilities<T>{log_sum_exp, heads}, d_out, d_qkv);
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void attention_forward<T>(ExecutionSpace const&, Matrix<T const>, Index, Tensor4<T>, Matrix<T>);            \
  template void attention_backward<T>(ExecutionSpace const&, Matrix<T const>, Tensor4<T const>, Matrix<T const>,       \
                                      Matrix<T>);                                                                      \
  template void flash_attention_forward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Vector<float>,        \
                                           Matrix<T>);                                                                 \
  template void flash_attention_backward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Vector<float const>, \
                                            Matrix<T const>, Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone::plain
