#include "comm/execution/neighbour_watch.hpp"

#include "comm/execution/node_memory.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <vector>

using namespace trainstone;
using namespace trainstone::Impl;

namespace {

// What constructors do is in functions: nvcc 13.0 does not end on a REQUIRE in a constructor.

void* map_bytes(File const& memory, std::size_t bytes) {
  REQUIRE(ftruncate(memory.descriptor(), static_cast<off_t>(bytes)) == 0);
  void* const mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.descriptor(), 0);
  REQUIRE(mapping != MAP_FAILED);
  return mapping;
}

/// What the ranks of a node share, without MPI: the memory, and an open file of its own for every rank.
class Node {
public:
  explicit Node(std::size_t ranks)
      : m_memory(memfd_create("test", MFD_CLOEXEC)), m_ranks(ranks), m_mapping(map_bytes(m_memory, bytes())) {
    for (std::size_t rank = 0; rank < ranks; ++rank) m_files.push_back(opened());
  }
  Node(Node const&) = delete;
  Node& operator=(Node const&) = delete;
  ~Node() { munmap(m_mapping, bytes()); }

  File opened(int access = O_RDWR) const {
    return File(open(fmt::format("/proc/self/fd/{}", m_memory.descriptor()).c_str(), access | O_CLOEXEC));
  }
  /// As a rank sees it with its own file or that one.
  Neighbourhood seen_by(std::size_t rank) const { return seen_by(rank, m_files[rank]); }
  Neighbourhood seen_by(std::size_t rank, File const& file) const {
    return {file.descriptor(), std::span(static_cast<Presence*>(m_mapping), m_ranks), rank};
  }
  /// All that the system does when the rank's process ends.
  void close(std::size_t rank) { m_files[rank] = opened(); }

private:
  std::size_t bytes() const { return m_ranks * sizeof(Presence); }

  File m_memory;
  std::size_t m_ranks;
  void* m_mapping;
  std::vector<File> m_files;
};

RankProcess process_of(std::size_t rank) { return {static_cast<Rank>(rank), static_cast<std::int32_t>(1000 + rank)}; }

pid_t start(std::function<void()> const& work) {
  int done[2];
  REQUIRE(pipe(done) == 0);
  pid_t const process = fork();
  if (process == 0) {
    work();
    if (write(done[1], "", 1) == 1) pause();
    _exit(1);
  }
  File const from(done[0]), to(done[1]);
  char byte = 1;
  REQUIRE(read(from.descriptor(), &byte, 1) == 1);
  return process;
}

/// A process that does this and then waits to be killed.
class Child {
public:
  explicit Child(std::function<void()> const& work) : m_process(start(work)) {}
  Child(Child const&) = delete;
  Child& operator=(Child const&) = delete;
  ~Child() { kill_it(); }

  void kill_it() {
    if (m_process == 0) return;
    kill(m_process, SIGKILL);
    waitpid(m_process, nullptr, 0);
    m_process = 0;
  }

private:
  pid_t m_process;
};

} // namespace

TEST_CASE("a watch looks once a second", "[watch]") {
  CHECK(NeighbourWatch::usual_period == std::chrono::milliseconds(1000));
}

TEST_CASE("a killed process is missed, and not before", "[watch]") {
  Node const node(2);
  Child child([&] {
    auto const* const own = new File(node.opened()); // open until the end; the parent has those of the node, too
    come(node.seen_by(1, *own), process_of(1));
  });
  come(node.seen_by(0), process_of(0));
  CHECK(!find_ended(node.seen_by(0)));
  child.kill_it();
  CHECK(find_ended(node.seen_by(0)) == process_of(1));
}

TEST_CASE("who leaves in order is not missed, whoever stays", "[watch]") {
  constexpr std::size_t ranks = 4;
  for (unsigned leaving = 0; leaving < 1u << ranks; ++leaving) {
    Node node(ranks);
    auto const nobody_misses = [&] {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        INFO("rank " << rank << " looks while the ranks in " << leaving << " leave");
        CHECK(!find_ended(node.seen_by(rank)));
      }
    };
    nobody_misses(); // nobody has come
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      come(node.seen_by(rank), process_of(rank));
      nobody_misses();
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if ((leaving >> rank & 1u) == 0) continue;
      say_goodbye(node.seen_by(rank));
      nobody_misses();
      node.close(rank);
      nobody_misses();
    }
  }
}

TEST_CASE("somebody who lives misses who has ended without a goodbye, whoever else has left", "[watch]") {
  constexpr std::size_t ranks = 4;
  enum class Fate { lives, leaves, dies };
  for (unsigned fates = 0; fates < 81; ++fates) {
    auto const fate = [&](std::size_t rank) {
      constexpr std::array<unsigned, ranks> weights{1, 3, 9, 27};
      return static_cast<Fate>(fates / weights[rank] % 3);
    };
    Node node(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) come(node.seen_by(rank), process_of(rank));
    std::size_t living = 0, dead = 0, missed = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (fate(rank) == Fate::leaves) say_goodbye(node.seen_by(rank));
      if (fate(rank) != Fate::lives) node.close(rank);
      living += fate(rank) == Fate::lives ? 1 : 0;
      dead += fate(rank) == Fate::dies ? 1 : 0;
    }
    INFO("fates " << fates);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (fate(rank) != Fate::lives) continue;
      auto const found = find_ended(node.seen_by(rank));
      if (!found) continue;
      ++missed;
      CHECK(fate(static_cast<std::size_t>(found->rank)) == Fate::dies);
      CHECK(*found == process_of(static_cast<std::size_t>(found->rank)));
    }
    CHECK((missed > 0) == (living > 0 && dead > 0));
  }
}

TEST_CASE("all learn from the first who was missed, and not who follows", "[watch]") {
  constexpr std::size_t ranks = 5;
  Node node(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) come(node.seen_by(rank), process_of(rank));
  node.close(3);
  CHECK(find_ended(node.seen_by(2)) == process_of(3));
  CHECK(!find_ended(node.seen_by(1)));
  follow(node.seen_by(2), process_of(3));
  node.close(2); // has ended, too
  for (std::size_t const rank : {0, 1, 4}) CHECK(find_ended(node.seen_by(rank)) == process_of(3));
}

TEST_CASE("who cannot have a lock is not missed, and misses nobody without reason", "[watch]") {
  Node const node(2);
  File const unlockable = node.opened(O_RDONLY);
  come(node.seen_by(0), process_of(0));
  come(node.seen_by(1, unlockable), process_of(1));
  CHECK(!find_ended(node.seen_by(0)));
  CHECK(!find_ended(node.seen_by(1, unlockable)));
  CHECK(!find_ended(node.seen_by(1, File()))); // the system does not tell
}
