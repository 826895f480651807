#include "comm/communicator.hpp"
#include "comm/environment.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

TEST_CASE("the name of the MPI library is cut out of what it says about itself", "[comm][environment]") {
  CHECK(short_library_version("MPICH Version:      5.0.2\nMPICH Release date: today\n") == "MPICH 5.0.2");
  CHECK(short_library_version("MPICH Version:\t4.2.1\nMPICH ABI: 16") == "MPICH 4.2.1");
  CHECK(short_library_version("Open MPI v5.0.7, package: Debian, ident: 5.0.7") == "Open MPI 5.0.7");
  CHECK(short_library_version("MVAPICH2 Version      :\t2.3.7\n") == "MVAPICH2 2.3.7");
  CHECK(short_library_version("Intel(R) MPI Library 2021.10 for Linux* OS\n") == "Intel(R) MPI Library 2021.10");
  CHECK(short_library_version("some library") == "some library");
  CHECK(short_library_version("") == "");
}

TEST_CASE("ranks share a node if host name and boot agree", "[comm][environment]") {
  NodeMap const nodes = make_node_map({"b", "a", "b", "b", "a"}, {"1", "1", "1", "2", "1"});
  CHECK(nodes.count == 3);
  CHECK(nodes.node_of_rank == std::vector<int>{0, 1, 0, 2, 1});
  CHECK(nodes.host_names == std::vector<std::string>{"b", "a", "b"});
}
