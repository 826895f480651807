#pragma once

// The table of keys in parts, each in the order in which `--help-deck` lists it, and in a file of its name
// (training_keys.cpp, ...). schema.hpp has the whole table.

#include "deck/key.hpp"

#include <vector>

namespace trainstone::Impl {

/// What is trained, and how it is shared out: class, model, data, batch, precision, optimizer, parallel.
std::vector<Key> training_keys();
/// A part of training_keys().
std::vector<Key> data_keys();
/// What lies where in memory and in files, and what is computed again.
std::vector<Key> memory_keys();
/// How the machine is used, and what a run does beside the training: comm, kernels, bench, faults, checkpoint, trace.
std::vector<Key> machine_keys();

/// All keys of some sections, in their order.
inline std::vector<Key> joined(std::vector<std::vector<Key>> const& sections) {
  std::vector<Key> keys;
  for (std::vector<Key> const& section : sections) keys.insert(keys.end(), section.begin(), section.end());
  return keys;
}

} // namespace trainstone::Impl
