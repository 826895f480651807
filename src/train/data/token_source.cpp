#include "train/data/token_source.hpp"

#include "core/error.hpp"
#include "core/random.hpp"

#include <xxhash.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

namespace trainstone {

static_assert(std::endian::native == std::endian::little, "token shards are little-endian and read as they are");
static_assert(sizeof(off_t) == 8, "files are larger than 2 GiB");

namespace {

constexpr std::int64_t shard_header_bytes = 256 * sizeof(std::int32_t);

struct ShardKind {
  std::int32_t magic;
  std::int32_t version;
  int bytes_per_token;
};
constexpr std::array shard_kinds = {ShardKind{20240520, 1, 2}, ShardKind{20240801, 7, 4}};

std::string system_error() { return std::strerror(errno); }

/// Not blocking, so that a named pipe is refused and not waited for.
int open_for_reading(std::string const& path) {
  int const descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  TRAINSTONE_REQUIRE_INPUT(descriptor >= 0, "{}: cannot be opened: {}", path, system_error());
  return descriptor;
}

template <class Stored>
void widen(std::span<unsigned char const> bytes, std::span<std::int32_t> tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    tokens[i] = static_cast<std::int32_t>(value);
  }
}

template <class Stored>
Stored largest_token(std::span<unsigned char const> bytes) {
  Stored largest = 0;
  for (std::size_t i = 0; i + sizeof(Stored) <= bytes.size(); i += sizeof(Stored)) {
    Stored value;
    std::memcpy(&value, bytes.data() + i, sizeof(Stored));
    largest = std::max(largest, value);
  }
  return largest;
}

/// The largest of the tokens in `bytes`, which lie in `file` from byte `offset` on.
template <class Stored>
std::int64_t checked_largest_token(TokenFile const& file, std::int64_t offset, std::span<unsigned char const> bytes,
                                   std::int64_t vocabulary) {
  std::int64_t const largest = largest_token<Stored>(bytes);
  if (largest < vocabulary) return largest;
  for (std::size_t i = 0;; i += sizeof(Stored)) { // ends at the latest at the largest token
    std::int64_t const token = largest_token<Stored>(bytes.subspan(i, sizeof(Stored)));
    TRAINSTONE_REQUIRE_INPUT(token < vocabulary,
                             "{}: byte {}: token {} is outside the vocabulary of {} (legal: 0 to {})", file.path(),
                             offset + static_cast<std::int64_t>(i), token, vocabulary, vocabulary - 1);
  }
}

std::int64_t checked_largest_token(TokenFile const& file, std::int64_t offset, std::span<unsigned char const> bytes,
                                   std::int64_t vocabulary) {
  switch (file.bytes_per_token()) {
  case 1: return checked_largest_token<std::uint8_t>(file, offset, bytes, vocabulary);
  case 2: return checked_largest_token<std::uint16_t>(file, offset, bytes, vocabulary);
  default: return checked_largest_token<std::uint32_t>(file, offset, bytes, vocabulary);
  }
}

void require_range(std::int64_t offset, std::size_t count, std::int64_t size) {
  TRAINSTONE_REQUIRE(offset >= 0 && static_cast<std::int64_t>(count) <= size - offset,
                     "tokens {} to {} asked of a source of {}", offset, offset + static_cast<std::int64_t>(count),
                     size);
}

} // namespace

TokenFile::Descriptor::~Descriptor() {
  if (m_value >= 0) ::close(m_value);
}

TokenFile::TokenFile(std::string path, TokenFormat format)
    : m_path(std::move(path)), m_descriptor(open_for_reading(m_path)) {
  struct stat status = {};
  TRAINSTONE_REQUIRE_INPUT(::fstat(m_descriptor.value(), &status) == 0, "{}: {}", m_path, system_error());
  TRAINSTONE_REQUIRE_INPUT(!S_ISDIR(status.st_mode), "{}: is a directory, not a file", m_path);
  TRAINSTONE_REQUIRE_INPUT(S_ISREG(status.st_mode), "{}: is not a regular file", m_path);
  m_bytes = status.st_size;
  TRAINSTONE_REQUIRE_INPUT(m_bytes > 0, "{}: byte 0: the file is empty", m_path);
  if (format == TokenFormat::shard) read_shard_header();
}

void TokenFile::read_shard_header() {
  TRAINSTONE_REQUIRE_INPUT(m_bytes >= shard_header_bytes,
                           "{}: byte {}: the file ends inside the token shard's header of {} bytes", m_path, m_bytes,
                           shard_header_bytes);
  std::array<std::int32_t, 3> header;
  read_bytes(0, {reinterpret_cast<unsigned char*>(header.data()), sizeof(header)});
  auto const [magic, version, tokens] = header;
  auto const kind = std::ranges::find(shard_kinds, magic, &ShardKind::magic);
  TRAINSTONE_REQUIRE_INPUT(kind != shard_kinds.end(),
                           "{}: byte 0: magic number {} is not a token shard's: 20240520 (uint16) or 20240801 (uint32)",
                           m_path, magic);
  TRAINSTONE_REQUIRE_INPUT(version == kind->version, "{}: byte 4: version {} of token shard {}, must be {}", m_path,
                           version, magic, kind->version);
  TRAINSTONE_REQUIRE_INPUT(tokens > 0, "{}: byte 8: the header announces {} tokens, must be at least 1", m_path,
                           tokens);
  m_first_byte = shard_header_bytes;
  m_bytes_per_token = kind->bytes_per_token;
  std::int64_t const end = m_first_byte + std::int64_t{tokens} * m_bytes_per_token;
  TRAINSTONE_REQUIRE_INPUT(m_bytes >= end, "{}: byte {}: the file ends, but the header announces {} tokens = {} bytes",
                           m_path, m_bytes, tokens, end);
  TRAINSTONE_REQUIRE_INPUT(m_bytes == end, "{}: byte {}: {} bytes follow the {} tokens that the header announces",
                           m_path, end, m_bytes - end, tokens);
}

void TokenFile::read_bytes(std::int64_t offset, std::span<unsigned char> out) const {
  while (!out.empty()) {
    ssize_t const got = ::pread(m_descriptor.value(), out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    TRAINSTONE_REQUIRE_INPUT(got >= 0, "{}: byte {}: cannot be read: {}", m_path, offset, system_error());
    TRAINSTONE_REQUIRE_INPUT(got > 0, "{}: byte {}: the file ends, but had {} bytes when it was opened", m_path, offset,
                             m_bytes);
    offset += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void TokenFile::read(std::int64_t offset, std::span<std::int32_t> out) const {
  require_range(offset, out.size(), size());
  std::array<unsigned char, 16384> buffer;
  auto const width = static_cast<std::size_t>(m_bytes_per_token);
  while (!out.empty()) {
    std::size_t const count = std::min(out.size(), buffer.size() / width);
    std::span const bytes(buffer.data(), count * width);
    read_bytes(m_first_byte + offset * m_bytes_per_token, bytes);
    switch (m_bytes_per_token) {
    case 1: widen<std::uint8_t>(bytes, out.first(count)); break;
    case 2: widen<std::uint16_t>(bytes, out.first(count)); break;
    default: widen<std::uint32_t>(bytes, out.first(count)); break;
    }
    offset += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
}

FileTokens::FileTokens(std::vector<std::string> const& paths, TokenFormat format) {
  TRAINSTONE_REQUIRE_INPUT(!paths.empty(), "the list of data files is empty: name at least one");
  m_files.reserve(paths.size());
  m_begin.push_back(0);
  for (std::string const& path : paths) {
    TokenFile const& file = m_files.emplace_back(path, format);
    m_begin.push_back(m_begin.back() + file.size());
  }
}

void FileTokens::read(std::int64_t offset, std::span<std::int32_t> out) const {
  require_range(offset, out.size(), size());
  while (!out.empty()) {
    auto const i = static_cast<std::size_t>(std::ranges::upper_bound(m_begin, offset) - m_begin.begin()) - 1;
    std::size_t const count = std::min(out.size(), static_cast<std::size_t>(m_begin[i + 1] - offset));
    SteadyTime const begin = std::chrono::steady_clock::now();
    m_files[i].read(offset - m_begin[i], out.first(count));
    note_read(count * static_cast<std::size_t>(m_files[i].bytes_per_token()), begin);
    offset += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
}

FileReads FileTokens::reads() const { return {m_bytes_read, 1e-9 * static_cast<double>(m_nanoseconds)}; }

void FileTokens::note_read(std::uint64_t bytes, SteadyTime begin) const {
  std::chrono::nanoseconds const passed = std::chrono::steady_clock::now() - begin;
  m_bytes_read += bytes;
  m_nanoseconds += static_cast<std::uint64_t>(passed.count());
}

FileScan FileTokens::scan(std::int64_t vocabulary) const {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> const hash(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  std::vector<unsigned char> buffer(1 << 20);
  FileScan result;
  for (TokenFile const& file : m_files) {
    for (std::int64_t offset = 0; offset < file.bytes(); offset += static_cast<std::int64_t>(buffer.size())) {
      std::size_t const count = std::min(buffer.size(), static_cast<std::size_t>(file.bytes() - offset));
      std::span const bytes(buffer.data(), count);
      SteadyTime const begin = std::chrono::steady_clock::now();
      file.read_bytes(offset, bytes);
      note_read(count, begin);
      XXH3_64bits_update(hash.get(), bytes.data(), bytes.size());
      std::int64_t const header = offset == 0 ? file.first_byte() : 0; // fits into the first buffer
      std::int64_t const largest =
          checked_largest_token(file, offset + header, bytes.subspan(static_cast<std::size_t>(header)), vocabulary);
      result.vocabulary_needed = std::max(result.vocabulary_needed, largest + 1);
    }
  }
  result.xxhash = XXH3_64bits_digest(hash.get());
  return result;
}

std::string xxhash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

void require_xxhash(std::string_view expected, std::uint64_t found) {
  TRAINSTONE_REQUIRE_INPUT(expected.empty() || expected == xxhash_text(found),
                           "the data files have xxHash \"{}\", but data.xxhash is \"{}\"", xxhash_text(found),
                           expected);
}

SyntheticTokens::SyntheticTokens(std::uint64_t seed, std::int64_t vocabulary, std::int64_t size)
    : m_seed(seed), m_vocabulary(vocabulary), m_size(size) {
  TRAINSTONE_REQUIRE_INPUT(vocabulary >= 1 && vocabulary < (std::int64_t{1} << 31),
                           "vocabulary {} of the synthetic data is outside [1, 2^31)", vocabulary);
  TRAINSTONE_REQUIRE_INPUT(size >= 1, "synthetic data of {} tokens: must be at least 1", size);
  RandomBlock const rule = random_block(seed, RandomStream::synthetic_data, ~std::uint64_t{0});
  m_shift = rule.words[0] % vocabulary;
  m_factor = rule.words[1] % vocabulary;
  while (std::gcd(m_factor, vocabulary) != 1) m_factor = (m_factor + 1) % vocabulary; // coprime: a permutation
}

std::int64_t SyntheticTokens::next(std::int64_t position, std::int64_t previous) const {
  RandomBlock const random = random_block(m_seed, RandomStream::synthetic_data, static_cast<std::uint64_t>(position));
  bool const successor = position % block != 0 && uniform(random.words[0]) <= successor_probability;
  if (successor) return (m_factor * previous + m_shift) % m_vocabulary;
  return static_cast<std::int64_t>((std::uint64_t{random.words[1]} * static_cast<std::uint64_t>(m_vocabulary)) >> 32);
}

void SyntheticTokens::read(std::int64_t offset, std::span<std::int32_t> out) const {
  require_range(offset, out.size(), m_size);
  std::int64_t token = 0;
  std::int64_t position = offset - offset % block;
  for (; position < offset; ++position) token = next(position, token);
  for (std::int32_t& written : out) {
    token = next(position++, token);
    written = static_cast<std::int32_t>(token);
  }
}

double SyntheticTokens::entropy() const {
  auto const vocabulary = static_cast<double>(m_vocabulary);
  double const other = (1 - successor_probability) / vocabulary;
  double const successor = successor_probability + other;
  double const ruled = -successor * std::log(successor) - (vocabulary - 1) * other * std::log(other);
  return (std::log(vocabulary) + static_cast<double>(block - 1) * ruled) / static_cast<double>(block);
}

} // namespace trainstone
