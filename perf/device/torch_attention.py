"""Attention alone in PyTorch, for perf/device/device_report, which starts this program.

usage: python torch_attention.py cuda|cpu BATCHxSEQUENCExHEADSxSIZE...
Causal scaled_dot_product_attention of bf16 by each backend that is named, forward and backward. Prints one line of JSON: what
computes, and for every shape and backend the median seconds of a call, or why there are none. Backward is autograd's call alone.
Exit 77: this Python has no PyTorch.
"""
import json
import statistics
import sys
import time

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
except ImportError as problem:
    print(f"{sys.executable} has no PyTorch ({problem})", file=sys.stderr)
    sys.exit(77)

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
WARM_UP, CALLS = 3, 21


def seconds_of(call, device):
    """Median of calls, of which each has ended before the next one begins."""
    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    found = []
    for number in range(WARM_UP + CALLS):
        wait()
        start = time.perf_counter()
        call()
        wait()
        if number >= WARM_UP:
            found.append(time.perf_counter() - start)
    return statistics.median(found)


def measure(backend, shape, device):
    batch, sequence, heads, size = map(int, shape.split("x"))
    with sdpa_kernel(backend):
        query, key, value, d_out = (torch.randn(batch, sequence, heads, size, device=device, dtype=torch.bfloat16)
                                    .transpose(1, 2) for _ in range(4))  # (B, NH, T, HS), as a model has them
        for one in (query, key, value):
            one.requires_grad_(True)
        forward = lambda: scaled_dot_product_attention(query, key, value, is_causal=True)
        out = forward()
        backward = lambda: torch.autograd.grad(out, (query, key, value), d_out, retain_graph=True)
        return {"forward": seconds_of(forward, device), "backward": seconds_of(backward, device)}


def main():
    device, *shapes = sys.argv[1:]
    rows = []
    for shape in shapes:
        for name, backend in BACKENDS.items():
            try:
                found = measure(backend, shape, device)
            except RuntimeError as refusal:  # no such backend for this device, or for this shape
                found = {"reason": str(refusal).strip().splitlines()[0]}
            rows.append({"shape": shape, "backend": name, **found})
    computes = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(json.dumps({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "device": computes, "rows": rows}))


main()
