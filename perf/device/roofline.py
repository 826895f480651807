"""Kernels beside the peaks of their machine: how long each takes, and which share of its bound it reaches. Arithmetic alone.

The least time of a kernel is its FLOPs at the rate of matrix products or its bytes at the bandwidth of memory, whichever is
longer. FLOPs and bytes are those that the kernel declares. Attention has another count of FLOPs in literature: the products of
the causal half, of backward two and a half times those of forward.
"""
WORTH = 0.03  # share of a step from which a kernel is judged
GOOD = 0.7    # share of its bound below which it is marked


def bound(flops, nbytes, peak_flops, peak_bytes):
    """(the least seconds, "gemm" or "bandwidth")"""
    computing, moving = flops / peak_flops, nbytes / peak_bytes
    return (computing, "gemm") if computing > moving else (moving, "bandwidth")


def kernel_rows(kernels, peak_flops, peak_bytes):
    """Rows of a table, the longest first. \\param kernels  those of result.json   \\param peak_flops, peak_bytes  per second; None
    where they were not measured"""
    total = sum(kernel["seconds"] for kernel in kernels)
    known = peak_flops and peak_bytes
    for kernel in sorted(kernels, key=lambda one: -one["seconds"]):
        seconds = kernel["seconds"]
        if seconds <= 0:
            continue
        least, by = bound(kernel["flops"], kernel["bytes"], peak_flops, peak_bytes) if known else (None, None)
        share, reached = seconds / total, least / seconds if known else None
        yield {"kernel": kernel["label"].removeprefix("trainstone::"), "launches": kernel["launches"], "ms": 1e3 * seconds,
               "share, %": 100 * share, "GB/s": 1e-9 * kernel["bytes"] / seconds, "TFLOP/s": 1e-12 * kernel["flops"] / seconds,
               "bound": by, "of bound, %": 100 * reached if known else None,
               "marked": f"below {GOOD:.0%}" if known and share > WORTH and reached < GOOD else None}


def summary(rows):
    """A sentence on all kernels, and on those that are marked."""
    judged = [row for row in rows if row["of bound, %"] is not None]
    if not judged:
        return "The peaks of this machine were not measured."
    total, least = sum(row["ms"] for row in judged), sum(row["ms"] * row["of bound, %"] / 100 for row in judged)
    marked = ", ".join(row["kernel"] for row in judged if row["marked"]) or "none"
    return (f"Kernels take {total:.4g} ms, and their bounds are {least:.4g} ms: {least / total:.0%}. "
            f"With more than {WORTH:.0%} of that time and below {GOOD:.0%} of their bound: {marked}.")


def causal_flops(batch, sequence, heads, size, backward=False):
    """Of the causal half: two products of forward, each of 2 T T HS FLOP per head and sample, by two."""
    return (2.5 if backward else 1) * 2 * batch * heads * sequence * sequence * size
