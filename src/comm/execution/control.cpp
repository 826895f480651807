#include "comm/execution/control.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/execution/execution_queue.hpp"
#include "comm/execution/mpi.hpp"

#include <exception>
#include <limits>
#include <numeric>

namespace trainstone {

namespace {

template <class T>
void all_reduce(ExecutionSpace const& exec, Communicator& communicator, Operation operation, std::span<T> values,
                ExecutionQueue* queue = nullptr) {
  Problem const problem{.collective = Collective::all_reduce,
                        .partition = Partition::even(static_cast<Index>(values.size()), communicator.size()),
                        .topology = communicator.topology()};
  Schedule const schedule = make_schedule(problem, Algorithm::ring, communicator.rank());
  std::vector<T> scratch(static_cast<std::size_t>(schedule.scratch_elements));
  Execution execution(exec, communicator, schedule, operation, Vector<T>(values.data(), values.size()),
                      Vector<T>(scratch.data(), scratch.size()),
                      {.purpose = Purpose::control, .persistent = false, .on_host = true});
  if (!queue) return execution.run();
  queue->start(execution);
  queue->wait(execution);
}

int checked_length(std::size_t bytes) {
  TRAINSTONE_REQUIRE(bytes <= std::size_t{std::numeric_limits<int>::max()}, "{} bytes are too many for a report",
                     bytes);
  return static_cast<int>(bytes);
}

} // namespace

void control_all_reduce(ExecutionSpace const& exec, Communicator& communicator, Operation operation,
                        std::span<double> values, ExecutionQueue* queue) {
  all_reduce(exec, communicator, operation, values, queue);
}

void control_all_reduce(ExecutionSpace const& exec, Communicator& communicator, Operation operation,
                        std::span<std::int64_t> values) {
  all_reduce(exec, communicator, operation, values);
}

double control_all_reduce(ExecutionSpace const& exec, Communicator& communicator, Operation operation, double value) {
  all_reduce(exec, communicator, operation, std::span(&value, 1));
  return value;
}

std::int64_t control_all_reduce(ExecutionSpace const& exec, Communicator& communicator, Operation operation,
                                std::int64_t value) {
  all_reduce(exec, communicator, operation, std::span(&value, 1));
  return value;
}

void barrier(Communicator const& communicator) {
  static CollectiveCall const call("barrier of a report");
  communicator.announce_and_compare(call);
  TRAINSTONE_MPI_CHECK(MPI_Barrier(communicator.handle().comm));
}

void Impl::all_gather_bytes(Communicator const& communicator, std::span<std::byte const> mine,
                            std::span<std::byte> all) {
  communicator.announce_and_compare(CollectiveCall(fmt::format("all-gather of {} bytes for a report", mine.size())));
  int const length = checked_length(mine.size());
  TRAINSTONE_REQUIRE(all.size() == mine.size() * static_cast<std::size_t>(communicator.size()),
                     "{} bytes from each of {} ranks do not fill {}", mine.size(), communicator.size(), all.size());
  TRAINSTONE_MPI_CHECK(
      MPI_Allgather(mine.data(), length, MPI_BYTE, all.data(), length, MPI_BYTE, communicator.handle().comm));
}

std::vector<std::string> all_gather_texts(Communicator const& communicator, std::string const& text) {
  static CollectiveCall const call("all-gather of texts for a report");
  communicator.announce_and_compare(call);
  std::vector<int> const lengths = all_gather_values(communicator, checked_length(text.size()));
  std::vector<int> offsets(lengths.size());
  std::string joined(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
  checked_length(joined.size()); // so the offsets cannot overflow
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  TRAINSTONE_MPI_CHECK(MPI_Allgatherv(text.data(), lengths[static_cast<std::size_t>(communicator.rank())], MPI_CHAR,
                                      joined.data(), lengths.data(), offsets.data(), MPI_CHAR,
                                      communicator.handle().comm));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    texts.push_back(joined.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(lengths[rank])));
  }
  return texts;
}

namespace {

/// Runs what may throw, until it has thrown.
class Guarded {
public:
  template <class Work>
  void run(Work const& work) {
    if (m_problem) return;
    try {
      work();
    } catch (...) {
      m_problem = std::current_exception();
    }
  }
  bool has_failed() const { return m_problem != nullptr; }
  void rethrow() const {
    if (m_problem) std::rethrow_exception(m_problem);
  }

private:
  std::exception_ptr m_problem;
};

/// Asks a rank for its pieces, one at a time, so that none waits in memory.
void take_pieces(MPI_Comm comm, int tag, Rank from, Guarded& guarded,
                 std::function<void(std::string const&)> const& take) {
  for (std::string piece(1, ' '); !piece.empty();) {
    int const wanted = guarded.has_failed() ? 0 : 1;
    TRAINSTONE_MPI_CHECK(MPI_Send(&wanted, 1, MPI_INT, from, tag, comm));
    if (wanted == 0) return;
    MPI_Status status;
    int length = 0;
    TRAINSTONE_MPI_CHECK(MPI_Probe(from, tag, comm, &status));
    TRAINSTONE_MPI_CHECK(MPI_Get_count(&status, MPI_CHAR, &length));
    piece.resize(static_cast<std::size_t>(length));
    TRAINSTONE_MPI_CHECK(MPI_Recv(piece.data(), length, MPI_CHAR, from, tag, comm, MPI_STATUS_IGNORE));
    if (!piece.empty()) guarded.run([&] { take(piece); });
  }
}

void give_pieces(MPI_Comm comm, int tag, Guarded& guarded, std::function<std::string()> const& next) {
  for (std::string piece(1, ' '); !piece.empty();) {
    int wanted = 0;
    TRAINSTONE_MPI_CHECK(MPI_Recv(&wanted, 1, MPI_INT, 0, tag, comm, MPI_STATUS_IGNORE));
    if (wanted == 0) return;
    piece.clear();
    int length = 0;
    guarded.run([&] {
      piece = next();
      length = checked_length(piece.size());
    });
    if (guarded.has_failed()) piece.clear();
    TRAINSTONE_MPI_CHECK(MPI_Send(piece.data(), length, MPI_CHAR, 0, tag, comm));
  }
}

} // namespace

void stream_to_first(Communicator& communicator, std::function<std::string()> const& next,
                     std::function<void(std::string const&)> const& take) {
  static CollectiveCall const call("texts that are brought to the first rank");
  communicator.announce_and_compare(call);
  HeldTag const tag = communicator.take_tag();
  MPI_Comm const comm = communicator.handle().comm;
  Guarded guarded;
  if (communicator.rank() != 0) {
    give_pieces(comm, tag.value(), guarded, next);
  } else {
    guarded.run([&] {
      for (std::string piece = next(); !piece.empty(); piece = next()) take(piece);
    });
    for (Rank from = 1; from < communicator.size(); ++from) take_pieces(comm, tag.value(), from, guarded, take);
  }
  guarded.rethrow();
}

void collectively(Communicator const& communicator, std::function<void()> const& work) {
  std::string problem;
  int code = 0;
  try {
    work();
  } catch (Error const& error) {
    problem = error.what();
    code = static_cast<int>(error.code());
  } catch (std::exception const& error) {
    problem = error.what();
    code = static_cast<int>(ExitCode::internal);
  }
  std::vector<int> const codes = all_gather_values(communicator, code);
  std::vector<std::string> const problems = all_gather_texts(communicator, problem);
  for (std::size_t rank = 0; rank < codes.size(); ++rank)
    if (codes[rank] != 0) throw CollectiveError(problems[rank], static_cast<ExitCode>(codes[rank]));
}

} // namespace trainstone
