#pragma once

// The model in a checkpoint as a file of llm.c: its parameters in fp32, without the optimizer's state. One process,
// without MPI and without a device.

#include <filesystem>

namespace trainstone {

class StoredCheckpoint;

/// Verifies all of the checkpoint first. Needs little memory, however large the model is. \throws InputError; Error if
/// the file cannot be written
void export_model(StoredCheckpoint const& checkpoint, std::filesystem::path const& file);

} // namespace trainstone
