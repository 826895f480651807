// main() of the tests that run in one process: Kokkos lives around the whole Catch2 session.

#include <Kokkos_Core.hpp>
#include <catch2/catch_session.hpp>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const kokkos(argc, argv);
  return Catch::Session().run(argc, argv);
}
