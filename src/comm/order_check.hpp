#pragma once

// The order check of a communicator's collectives: ranks that call different collectives at the same place get an
// error that names the calls and the ranks, on every rank, instead of waiting for each other for ever. Behind
// Communicator::check_order and announce; works in a message space of its own.

#include "comm/communicator.hpp"

namespace trainstone::Impl {

/// The communicator's destructor: ranks that still call collectives are told that this one has left.
void leave_order_check(Communicator const& communicator) noexcept;

} // namespace trainstone::Impl
