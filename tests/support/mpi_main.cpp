// main() of the tests that run on several ranks. Promises: a failure on any rank fails the whole run and is printed
// with its rank; rank 0 alone prints the summary; ranks meet after every test case, so that a rank that has left one
// early cannot leave the others waiting; an exception that no test expects ends the run at once, because the others
// wait for its rank within the test case. Uses MPI directly, because what it watches over is src/comm itself.
// TEST_MPI_THREADS: the threads that may call MPI (environment.hpp).

#include "comm/execution/environment.hpp"

#include <Kokkos_Core.hpp>
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <thread>

namespace {

constexpr auto patience = std::chrono::minutes(5); // for ranks that are slow because they share a core

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

bool has_others() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks > 1;
}

/// Waits until all ranks are here; false if they are not in time.
bool all_arrive() {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  auto const end = std::chrono::steady_clock::now() + patience;
  for (int arrived = 0; std::chrono::steady_clock::now() < end; std::this_thread::yield()) {
    MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
    if (arrived) return true;
  }
  return false;
}

[[noreturn]] void abort_run(std::string const& why) {
  std::ostringstream line; // one write, so that the lines of different ranks do not mix
  line << "rank " << world_rank() << ": " << why << '\n';
  std::cerr << line.str() << std::flush;
  std::cout << std::flush;
  MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  std::abort();
}

class RankListener : public Catch::EventListenerBase {
public:
  using EventListenerBase::EventListenerBase;

  void assertionEnded(Catch::AssertionStats const& stats) override {
    Catch::AssertionResult const& result = stats.assertionResult;
    if (result.isOk()) return;
    std::ostringstream text;
    text << "rank " << world_rank() << ": " << result.getSourceInfo() << ": FAILED: " << result.getExpressionInMacro()
         << "\n  with " << result.getExpandedExpression() << ' ' << result.getMessage() << '\n';
    for (Catch::MessageInfo const& info : stats.infoMessages) text << "  " << info.message << '\n';
    std::cerr << text.str() << std::flush;
    if (result.getResultType() == Catch::ResultWas::ThrewException && has_others()) abort_run("left a test case early");
  }

  void testCaseEnded(Catch::TestCaseStats const& stats) override {
    std::string const& name = stats.testInfo->name;
    if (!all_arrive()) {
      abort_run((stats.totals.assertions.allOk() ? "passed '" : "failed '") + name + "', other ranks do not arrive");
    }
  }
};

/// Sums up over ranks; every rank returns it.
int combined_result(int own_result) {
  int const failed = own_result != 0 ? 1 : 0;
  int failed_ranks = 0;
  MPI_Allreduce(&failed, &failed_ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (world_rank() == 0 && failed_ranks > 0) std::cout << failed_ranks << " of " << ranks << " ranks failed\n";
  return failed_ranks > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

} // namespace

CATCH_REGISTER_LISTENER(RankListener)

int main(int argc, char** argv) {
  trainstone::MpiEnvironment const mpi(argc, argv, trainstone::MpiThreads::TEST_MPI_THREADS);
  try {
    Kokkos::ScopeGuard const kokkos(argc, argv);
    Catch::Session session;
    int const usage = session.applyCommandLine(argc, argv);
    if (usage != 0) return usage;
    MPI_Bcast(&session.configData().rngSeed, 1, MPI_UINT32_T, 0, MPI_COMM_WORLD); // one order of test cases for all
    if (mpi.world_rank() != 0) session.configData().defaultOutputFilename = "/dev/null";
    return combined_result(session.run());
  } catch (std::exception const& error) {
    abort_run(error.what());
  }
}
