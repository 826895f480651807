#include "deck/schema.hpp"

#include "deck/key_sections.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace trainstone {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      std::size_t const substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

} // namespace

std::vector<Key> const& deck_keys() {
  static std::vector<Key> const keys = Impl::joined({Impl::training_keys(), Impl::memory_keys(), Impl::machine_keys()});
  return keys;
}

Key const* find_key(std::string_view name) {
  for (Key const& row : deck_keys()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

bool is_section(std::string_view name) {
  std::string const prefix = std::string(name) + '.';
  return std::any_of(deck_keys().begin(), deck_keys().end(),
                     [&](Key const& row) { return row.name.compare(0, prefix.size(), prefix) == 0; });
}

std::optional<std::string> nearest_key(std::string_view name) {
  // A key in the wrong section is meant more often than one with a similar name.
  for (Key const& row : deck_keys()) {
    if (last_part(row.name) == last_part(name)) return row.name;
  }
  Key const* nearest = nullptr;
  std::size_t distance = 1 + std::max<std::size_t>(2, name.size() / 3);
  for (Key const& row : deck_keys()) {
    std::size_t const candidate = edit_distance(name, row.name);
    if (candidate >= distance) continue;
    distance = candidate;
    nearest = &row;
  }
  return nearest ? std::optional(nearest->name) : std::nullopt;
}

std::optional<std::string> nearest_section(std::string_view name) {
  std::optional<std::string> nearest;
  std::size_t distance = 1 + std::max<std::size_t>(2, name.size() / 3);
  for (Key const& row : deck_keys()) {
    std::size_t const candidate = edit_distance(name, row.section());
    if (row.section().empty() || candidate >= distance) continue;
    distance = candidate;
    nearest = row.section();
  }
  return nearest;
}

} // namespace trainstone
