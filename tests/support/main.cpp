// main() of the tests that run in one process: Kokkos lives around the whole Catch2 session, and comparisons are noted
// by test case.

#include "support/numerics.hpp"

#include <Kokkos_Core.hpp>
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

namespace {

class NumericsListener : public Catch::EventListenerBase {
public:
  using EventListenerBase::EventListenerBase;
  void testCaseStarting(Catch::TestCaseInfo const& info) override { trainstone::test::begin_numerics(info.name); }
  void testRunEnded(Catch::TestRunStats const&) override { trainstone::test::write_numerics(); }
};

CATCH_REGISTER_LISTENER(NumericsListener)

} // namespace

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const kokkos(argc, argv);
  return Catch::Session().run(argc, argv);
}
