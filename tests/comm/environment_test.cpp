#include "comm/execution/communicator.hpp"
#include "comm/execution/environment.hpp"
#include "comm/measurement/mpi_settings.hpp"

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

TEST_CASE("transport libraries are found among the files that a process has mapped", "[comm][environment]") {
  CHECK(loaded_transports("").empty());
  CHECK(loaded_transports("7f00-7f01 r-xp 00000000 08:01 12 /usr/lib/libmpich.so.12\n").empty());
  CHECK(loaded_transports("7f00-7f01 r-xp 00000000 08:01 12 /usr/lib/ucx/libuct_cma.so.0.0.0\n"
                          "7f01-7f02 r--p 00001000 08:01 12 /usr/lib/ucx/libuct_cma.so.0.0.0\n"
                          "7f02-7f03 r--p 00000000 08:01 13 /usr/lib/libxpmem.so.0\n"
                          "7f03-7f04 r--p 00000000 08:01 14 /usr/lib/libfabric.so.1") ==
        std::vector<std::string>{"libfabric", "libuct_cma", "libxpmem"});
}

TEST_CASE("ranks share a node if host name and boot agree", "[comm][environment]") {
  NodeMap const nodes = make_node_map({"b", "a", "b", "b", "a"}, {"1", "1", "1", "2", "1"});
  CHECK(nodes.count == 3);
  CHECK(nodes.node_of_rank == std::vector<int>{0, 1, 0, 2, 1});
  CHECK(nodes.host_names == std::vector<std::string>{"b", "a", "b"});
}
