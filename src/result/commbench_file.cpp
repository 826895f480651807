#include "result/commbench_file.hpp"

#include "core/error.hpp"
#include "result/json_file.hpp"

#include <algorithm>

namespace trainstone {

namespace {

constexpr int schema_version = 1;

/// A word that figures are named by, each of its own.
std::string read_word(JsonFile const& file, std::string const& place) {
  std::string const word = file.text(place);
  bool const plain = !word.empty() && word.size() <= 40 && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  file.require(plain, fmt::format("{} must be a word of lower-case letters, digits and _", place));
  return word;
}

CommbenchFileRow read_row(JsonFile const& file, std::string const& place) {
  CommbenchFileRow row;
  row.collective = read_word(file, place + "collective");
  row.type = read_word(file, place + "type");
  row.algorithm = file.text(place + "algorithm");
  if (file.has(place + "picked")) row.picked = file.text(place + "picked");
  row.bytes = file.amount(place + "bytes");
  if (file.has(place + "seconds")) row.seconds = file.positive(place + "seconds/p50");
  row.bus_rate = file.optional_non_negative(place + "bus_bytes_per_second");
  row.predicted_seconds = file.optional_non_negative(place + "predicted_seconds");
  if (file.has(place + "wrong")) row.wrong = file.amount(place + "wrong");
  file.require(!row.is_wrong() || !row.seconds, place + "seconds must be null: the result was wrong");
  return row;
}

} // namespace

CommbenchFile read_commbench(JsonFile const& file) {
  file.require_version(schema_version);
  CommbenchFile read{.path = file.path(),
                     .version = file.text("/header/version"),
                     .mpi = file.text("/header/mpi"),
                     .cpu = file.text("/header/cpu"),
                     .kokkos = file.text("/header/kokkos"),
                     .buffers = file.text("/header/buffers"),
                     .predictions = file.text("/header/predictions"),
                     .timing = file.text("/header/timing"),
                     .ranks = file.count("/header/ranks"),
                     .nodes = file.count("/header/nodes"),
                     .emulated_nodes = file.boolean("/header/emulated_nodes"),
                     .rows = {}};
  for (std::size_t i = 0; i < file.length("/rows"); ++i)
    read.rows.push_back(read_row(file, fmt::format("/rows/{}/", i)));
  read.right = std::ranges::none_of(read.rows, &CommbenchFileRow::is_wrong);
  if (file.has("/finished")) read.finished = file.boolean("/finished"); // older files are written at the end
  file.require(file.text("/status") == (read.right ? "RIGHT" : "WRONG"), "/status does not belong to the rows");
  return read;
}

} // namespace trainstone
