#pragma once

// The model in a checkpoint as a file of llm.c: its parameters in fp32, without the optimizer's state. One process,
// without MPI and without a device.

#include <filesystem>

namespace trainstone {

class StoredCheckpoint;

/// Verifies all of the checkpoint first. Needs memory for the parameters. \throws InputError
void export_model(StoredCheckpoint const& checkpoint, std::filesystem::path const& file);

} // namespace trainstone
