#pragma once

// The state of one rank while the simulator of steps plays its program: which tokens, activations and parameters are
// there, and what gradients hold. Every function does one instruction, or throws the defect that it finds.

#include "parallel/program/activation_memory.hpp"
#include "parallel/program/exchange_table.hpp"
#include "parallel/program/gradient_cells.hpp"
#include "parallel/program/passes.hpp"
#include "parallel/program/program_cursor.hpp"
#include "parallel/program/step_simulator.hpp"

#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace trainstone::Impl {

/// Thrown where a defect is found.
struct FoundDefect {
  StepFinding finding;
};

class SimulatedRank {
public:
  explicit SimulatedRank(ShardPlan const& plan);

  ShardPlan const& plan() const { return *m_plan; }
  Rank rank() const { return m_layout->rank; }
  [[noreturn]] void fail(StepDefect defect, Instruction const& instruction, std::string const& what) const;

  void load(Instruction const& instruction);
  void forward(Instruction const& instruction);
  void recompute(Instruction const& instruction);
  void loss(Instruction const& instruction);
  void backward(Instruction const& instruction);
  void fold(Instruction const& instruction);
  void accumulate(Instruction const& instruction);
  void tie(Instruction const& instruction);
  void agree(Instruction const& instruction);
  void norm(Instruction const& instruction);
  void update(Instruction const& instruction);
  /// The last instruction of a section was done.
  void end_section(Section section, Instruction const& last);
  /// All sections were done.
  void require_played() const;
  void require_well_formed(Instruction const& instruction) const;

  /// An instruction starts what a later one waits for, or what a wait waits for has ended: one of the following.
  void begin(Instruction const& instruction);
  void end(Instruction const& wait);
  /// A message to or from another stage; from begin to end it uses its buffer.
  void begin_message(Instruction const& instruction);
  void end_message(Instruction const& instruction);

  /// What ranks of a tensor group bring together; from begin to end it uses its memory.
  void begin_exchange(Instruction const& instruction);
  void end_exchange(Instruction const& instruction);

  void begin_fetch(Instruction const& instruction);
  void end_fetch(Instruction const& instruction);
  void begin_gather(Instruction const& instruction);
  void end_gather(Instruction const& instruction);
  /// Whether the updated parameters are there, or on their way.
  bool is_published(Index unit) const;
  bool is_under_way(Index unit) const { return m_whole[index(unit)].under_way; }
  void begin_publish(Instruction const& instruction);
  void end_publish(Instruction const& instruction);
  /// How often the unit was updated.
  Index version(Index unit) const { return m_versions[index(unit)]; }
  /// By priority: whether a wait is for what a worker has pushed of a unit whose parameters it has.
  bool was_pushed(Instruction const& wait);

  /// From begin to end a collective uses the memory of a bucket: fresh gradients or sums.
  void begin_reduction(Instruction const& instruction);
  void end_reduction(Instruction const& instruction);
  /// The bucket's cells.
  std::vector<GradientCell*> cells_of(Index bucket);
  /// The member of the shard axis that owns a slice of a group.
  Rank owner(Index group, std::size_t slice) const;

private:
  struct Copy { ///< of a unit's parameters
    Index unit = Instruction::none;
    Index version = Instruction::none;
    bool under_way = false;
    bool read = true; ///< since it was gathered, or fetched
  };

  /// A buffer of the residual stream's gradient.
  struct StreamGradient {
    Index micro_batch = Instruction::none;
    Index part = Instruction::none;  ///< whose output the gradient is of
    Index piece = 0;                 ///< of the part's backward, the next one
    Index chunk = Instruction::none; ///< whose input the gradient is of, to be sent
    bool in_message = false;         ///< that nobody has waited for
  };

  /// What ranks of a tensor group bring together: whose it is, and how far it is.
  struct Exchanged {
    enum class State { nothing, own, under_way, whole };
    State state = State::nothing;
    Instruction by = {.act = Act::load}; ///< act, subject, micro-batch

    bool is_of(Instruction const& other) const {
      return by.act == other.act && by.subject == other.subject && by.micro_batch == other.micro_batch;
    }
  };
  /// A forward or a recomputation of which not all pieces have run.
  struct OpenPass {
    Instruction of;
    Index next; ///< piece
  };

  static std::size_t index(Index i) { return static_cast<std::size_t>(i); }
  Contribution contribution(Rank data_rank, Index micro_batch, Index part, Index piece) const {
    return {data_rank * m_layout->rank_micro_batches + micro_batch, part, piece};
  }
  void take_fetched(Instruction const& instruction);
  void run_pieces(Instruction const& instruction);
  void use_exchanged(Instruction const& instruction, SliceExchange exchange, Index number);
  void leave_for_exchange(Instruction const& instruction, SliceExchange exchange, Index number);
  Index loss_pieces() const;
  void require_no_open_pass(Instruction const& instruction) const;
  void begin_activation(Instruction const& instruction);
  void begin_gradient(Instruction const& instruction);
  void require_unsent(Instruction const& instruction) const;
  void write_gradients(Instruction const& instruction, Index number_of_piece);
  void read_parameters(Instruction const& instruction, Index unit);
  void read_tokens(Instruction const& instruction) const;
  void require_there(Instruction const& instruction, std::optional<PlacedActivation> const& missing) const;
  void require_unused(Instruction const& instruction, Index unit, BackwardPiece const& piece) const;
  void require_complete(Instruction const& instruction, GradientCell const& cell) const;
  bool was_written(Index part, Index number_of_piece, GradientCell const& cell, std::size_t slice) const;
  bool writes(Index part, BackwardPiece const& piece, GradientCell const& cell, std::size_t slice) const;
  Range in_unit(GradientCell const& cell, std::size_t slice) const;
  void fold_into_tree(GradientCell& cell, std::size_t slice, ContributionSum value, Index micro_batch,
                      ContributionSum& result);
  ContributionSum of_micro_batch(GradientCell const& cell, std::size_t slice, Rank of, Index number) const;
  ContributionSum expected(GradientCell const& cell, std::size_t slice) const;
  void update_unit(Instruction const& instruction);
  void require_all(Instruction const& instruction, GradientCell const& cell, std::size_t slice,
                   ContributionSum const& found) const;

  ShardPlan const* m_plan;
  StateLayout const* m_layout;
  std::vector<Index> m_versions; ///< by unit: updates of it
  std::vector<Copy> m_whole;     ///< by unit, where every rank keeps all parameters
  std::vector<Copy> m_slots;
  std::array<Copy, fetch_slots> m_fetched;
  std::vector<bool> m_loaded;  ///< by micro-batch
  std::vector<Index> m_losses; ///< by micro-batch: pieces of the loss
  ActivationMemory m_activations;
  std::vector<StreamGradient> m_streams;          ///< by buffer
  std::vector<bool> m_sent_slots, m_input_coming; ///< in a message that nobody has waited for; by slot, by input
  std::map<std::pair<SliceExchange, Index>, Exchanged> m_exchanged; ///< by chunk of rows
  ExchangeTable m_exchange_table;
  std::optional<OpenPass> m_open;
  std::vector<GradientCell> m_cells;
  std::vector<Index> m_updated_units;                          ///< of this section
  Index m_tied = 0, m_agreed = 0, m_normed = 0, m_updated = 0; ///< how often in this section
  bool m_has_norm = false;                                     ///< of the last step
  Index m_sections = 0;                                        ///< that have ended
};

} // namespace trainstone::Impl
