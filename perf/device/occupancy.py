"""How many blocks of a kernel a multiprocessor holds, and the cycles that its instructions take at least: arithmetic.

Limits: CUDA C++ Programming Guide, "Compute Capabilities". Rounding: cuda_occupancy.h of the toolkit.
"""
import dataclasses

SCHEDULERS = 4  # of a multiprocessor; each has its warps, a quarter of the registers, and starts one instruction per cycle
REGISTERS_AT_ONCE = 256  # of a warp, which are given out together
SHARED_AT_ONCE = 128  # bytes
SHARED_OF_DRIVER = 1024  # bytes, of every block


@dataclasses.dataclass(frozen=True)
class Limits:
    """Of a multiprocessor."""
    registers: int
    warps: int
    blocks: int
    shared: int  # bytes
    shared_of_block: int  # bytes


LIMITS = {"sm_80": Limits(65536, 64, 32, 164 * 1024, 163 * 1024), "sm_90": Limits(65536, 64, 32, 228 * 1024, 227 * 1024)}

# Multiplications of 16-bit numbers per cycle of a scheduler's tensor core. On sm_90 Nsight Compute counted 6 cycles for
# mma.sync.m16n8k16 (HMMA.16816, 2048 multiplications), on an H200. wgmma (HGMMA) reaches the peak of the data sheet.
FMA_PER_CYCLE = {"sm_80": {"HMMA": 256}, "sm_90": {"HMMA": 2048 / 6, "HGMMA": 512}}
SPECIAL_PER_CYCLE = 4  # results of MUFU, per scheduler: a warp's take 8 cycles


def round_up(number, multiple):
    return -(-number // multiple) * multiple


def limits_of(architecture):
    """None for one that is not known."""
    return LIMITS.get(architecture.rstrip("af"))


def rates_of(architecture):
    """Of tensor instructions; {} for one that is not known."""
    return FMA_PER_CYCLE.get(architecture.rstrip("af"), {})


def warps_by_registers(limits, registers):
    """How many warps the registers of a multiprocessor are enough for: each scheduler has those of its own."""
    of_warp = round_up(32 * max(registers, 1), REGISTERS_AT_ONCE)
    return limits.registers // SCHEDULERS // of_warp * SCHEDULERS


def blocks(limits, registers, threads, shared):
    """How many fit, and what limits them. shared: bytes of a block, without the driver's."""
    warps = -(-threads // 32)
    if shared > limits.shared_of_block:
        return 0, "shared memory"
    by = {"registers": warps_by_registers(limits, registers) // warps,
          "shared memory": limits.shared // round_up(shared + SHARED_OF_DRIVER, SHARED_AT_ONCE),
          "threads": limits.warps // warps,
          "blocks": limits.blocks}
    least = min(by, key=by.get)  # the first of them
    return by[least], least
