// Where liburing was found; elsewhere no_file_ring.cpp takes its place.

#include "core/file_transfers.hpp"

#include <fmt/format.h>

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace trainstone {

namespace {

class Ring final : public FileTransfers {
public:
  Ring(int file, RingPieces pieces) : m_file(file), m_piece_bytes(pieces.bytes), m_pieces(pieces.under_way) {
    io_uring_params parameters = {};
    m_error = -::io_uring_queue_init_params(pieces.under_way, &m_ring, &parameters);
    if (m_error != 0) return;
    m_is_open = true;
    // reads and writes without a vector came with this feature (Linux 5.6)
    if ((parameters.features & IORING_FEAT_RW_CUR_POS) == 0) m_error = ENOSYS;
  }
  ~Ring() override {
    if (m_is_open) ::io_uring_queue_exit(&m_ring);
  }
  /// Of the system, which refuses a ring; 0: it is ready.
  int error() const { return m_error; }

  std::optional<Stop> read(std::uint64_t offset, std::span<std::byte> out) override {
    return transfer(offset, out.size(), [&](io_uring_sqe* entry, Piece const& piece) {
      ::io_uring_prep_read(entry, m_file, out.data() + (piece.at - offset), static_cast<unsigned>(piece.bytes),
                           piece.at);
    });
  }
  std::optional<Stop> write(std::uint64_t offset, std::span<std::byte const> bytes) override {
    return transfer(offset, bytes.size(), [&](io_uring_sqe* entry, Piece const& piece) {
      ::io_uring_prep_write(entry, m_file, bytes.data() + (piece.at - offset), static_cast<unsigned>(piece.bytes),
                            piece.at);
    });
  }

private:
  /// What of a part of a transfer is not moved.
  struct Piece {
    std::uint64_t at = 0; ///< byte of the file
    std::uint64_t bytes = 0;
  };

  template <class Prepare>
  std::optional<Stop> transfer(std::uint64_t offset, std::uint64_t bytes, Prepare const& prepare) {
    std::optional<Stop> stop;
    std::uint64_t next = offset;
    unsigned under_way = 0;
    auto const start = [&](Piece& piece) {
      io_uring_sqe* const entry = ::io_uring_get_sqe(&m_ring); // there are as many as pieces
      prepare(entry, piece);
      ::io_uring_sqe_set_data(entry, &piece);
      ++under_way;
    };
    auto const start_next = [&](Piece& piece) {
      piece = {next, std::min(m_piece_bytes, offset + bytes - next)};
      next += piece.bytes;
      if (piece.bytes > 0) start(piece);
    };
    for (Piece& piece : m_pieces) start_next(piece);
    while (under_way > 0) {
      int const error = ::io_uring_submit_and_wait(&m_ring, 1);
      if (error < 0 && !is_passing(error)) return Stop{offset, -error}; // a broken ring: nothing can be waited for
      for (io_uring_cqe* ended = nullptr; ::io_uring_peek_cqe(&m_ring, &ended) == 0;) {
        Piece& piece = *static_cast<Piece*>(::io_uring_cqe_get_data(ended));
        int const moved = ended->res;
        ::io_uring_cqe_seen(&m_ring, ended);
        --under_way;
        if (moved <= 0 && !is_passing(moved)) { // pieces end in any order: the first byte counts
          if (!stop || piece.at < stop->at) stop = {piece.at, -moved};
          continue;
        }
        auto const more = static_cast<std::uint64_t>(std::max(moved, 0));
        piece.at += more;
        piece.bytes -= more;
        if (piece.bytes > 0)
          start(piece);
        else if (!stop)
          start_next(piece);
      }
    }
    return stop;
  }

  /// To be tried again.
  static bool is_passing(int error) { return error == -EINTR || error == -EAGAIN || error == -EBUSY; }

  int m_file;
  std::uint64_t m_piece_bytes;
  std::vector<Piece> m_pieces; ///< under way
  io_uring m_ring = {};
  bool m_is_open = false;
  int m_error = 0;
};

} // namespace

std::unique_ptr<FileTransfers> make_ring(int file, std::string& why_not, RingPieces pieces) {
  auto ring = std::make_unique<Ring>(file, pieces);
  if (ring->error() == 0) return ring;
  why_not = fmt::format("the system refuses io_uring: {}", std::strerror(ring->error()));
  return nullptr;
}

} // namespace trainstone
