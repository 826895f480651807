#pragma once

// Token sources. Owns where training and held-out text comes from: files (the bytes of any files, or llm.c's token
// shards) and a synthetic sequence. Promises random access by token number with 64-bit offsets, memory use that does
// not grow with the files, and errors that name file and byte offset before anything large is allocated.
// Knows nothing of samples, batches or ranks.

#include "core/clock.hpp"
#include "core/file_reads.hpp"

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone {

/// A finite sequence of tokens.
class TokenSource {
public:
  virtual ~TokenSource() = default;
  virtual std::int64_t size() const = 0;
  /// Writes the tokens [offset, offset + out.size()) to out. May be called by several threads at once.
  /// \throws Error if the range leaves [0, size()); InputError if a file cannot be read any more
  virtual void read(std::int64_t offset, std::span<std::int32_t> out) const = 0;
  /// What all threads of this process have read so far; nothing if there are no files.
  virtual FileReads reads() const { return {}; }
};

/// The format of a file.
enum class TokenFormat {
  text,  ///< every byte is a token: vocabulary 256
  shard, ///< llm.c token shard: 256 int32 (magic, version, tokens, zeros), then the tokens; magic and version are
         ///< 20240520 and 1 (uint16 tokens) or 20240801 and 7 (uint32 tokens)
};

/// One file of tokens, open for reading. Its tokens lie unpadded, little-endian, behind `first_byte`.
class TokenFile {
public:
  /// Opens the file and checks header and length; reads no more than the header.
  /// \throws InputError if it is missing, unreadable, no regular file or empty, or (shard) if magic, version or the
  ///         number of tokens is wrong: the length must match the header to the byte
  TokenFile(std::string path, TokenFormat format);

  std::string const& path() const { return m_path; }
  std::int64_t bytes() const { return m_bytes; }
  std::int64_t first_byte() const { return m_first_byte; }
  int bytes_per_token() const { return m_bytes_per_token; }
  std::int64_t size() const { return (m_bytes - m_first_byte) / m_bytes_per_token; }

  /// Writes the tokens [offset, offset + out.size()) of this file to out.
  void read(std::int64_t offset, std::span<std::int32_t> out) const;
  /// Reads exactly out.size() bytes from byte `offset` on. \throws InputError if the file ends before
  void read_bytes(std::int64_t offset, std::span<unsigned char> out) const;

private:
  void read_shard_header();

  /// Closes the file at its end; the one place that owns the number.
  class Descriptor {
  public:
    explicit Descriptor(int value) : m_value(value) {}
    Descriptor(Descriptor&& other) noexcept : m_value(std::exchange(other.m_value, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor();
    int value() const { return m_value; }

  private:
    int m_value;
  };

  std::string m_path;
  Descriptor m_descriptor;
  std::int64_t m_bytes = 0;
  std::int64_t m_first_byte = 0;
  int m_bytes_per_token = 1;
};

/// The findings of a scan of all files.
struct FileScan {
  std::uint64_t xxhash = 0;           ///< XXH3-64 of all bytes of the files, one after the other in the order given
  std::int64_t vocabulary_needed = 0; ///< largest token + 1
};

/// The tokens of several files, one after the other in the order given.
class FileTokens : public TokenSource {
public:
  /// \throws InputError as TokenFile does, or if `paths` is empty
  FileTokens(std::vector<std::string> const& paths, TokenFormat format);

  std::int64_t size() const override { return m_begin.back(); }
  void read(std::int64_t offset, std::span<std::int32_t> out) const override;
  FileReads reads() const override;

  /// Reads every file once from beginning to end, through a buffer of fixed size; one rank may do it for all.
  /// \throws InputError at the first token >= vocabulary (names file, byte offset, token and vocabulary)
  FileScan scan(std::int64_t vocabulary) const;

private:
  void note_read(std::uint64_t bytes, SteadyTime begin) const;

  std::vector<TokenFile> m_files;
  std::vector<std::int64_t> m_begin; ///< first token of file i; one past the end for the last
  mutable std::atomic<std::uint64_t> m_bytes_read = 0, m_nanoseconds = 0;
};

/// The hash as decks and results write it: 16 hexadecimal digits, the same as `cat FILES | xxhsum -H3` prints.
std::string xxhash_text(std::uint64_t hash);

/// \throws InputError naming both if `expected` (data.xxhash; empty: nothing to check) is another hash than `found`
void require_xxhash(std::string_view expected, std::uint64_t found);

/// A learnable sequence without files: token i depends on (seed, vocabulary, i) alone.
/// Blocks of 64 tokens begin with a random token; every further one is, with probability 0.9, the affine successor
/// (a * previous + c) mod vocabulary, a permutation drawn from the seed, and else a random token. A model that has
/// learned the rule has a loss near `entropy()`; one that has not, ln(vocabulary).
class SyntheticTokens : public TokenSource {
public:
  static constexpr std::int64_t block = 64;
  static constexpr double successor_probability = 0.9;

  /// \throws InputError unless 1 <= vocabulary < 2^31 and size >= 1
  SyntheticTokens(std::uint64_t seed, std::int64_t vocabulary, std::int64_t size);

  std::int64_t size() const override { return m_size; }
  void read(std::int64_t offset, std::span<std::int32_t> out) const override;
  /// Mean entropy of a token given its predecessor and its place in the block, in nats.
  double entropy() const;

private:
  std::int64_t next(std::int64_t position, std::int64_t previous) const;

  std::uint64_t m_seed;
  std::int64_t m_vocabulary;
  std::int64_t m_size;
  std::int64_t m_factor;
  std::int64_t m_shift;
};

} // namespace trainstone
