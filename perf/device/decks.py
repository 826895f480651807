"""What parts of a device report train: keys of decks, and the ways to compute attention that this build has of them."""
from part_runner import OutOfTime

DECK, QUICKSTART = "inputs/gpt2-124m.toml", "inputs/quickstart.toml"
FLASH = "model.attention=flash"
BF16 = ("precision.recipe=mixed16", "precision.storage=bf16")
MODELS = {"GPT-2 124 M": ("gpt2", 64, 1024), "GPT-2 XL": ("gpt2-xl", 16, 1024)}  # preset, samples and tokens of each
QUICK_MODELS = {"two layers": ("gpt2", 2, 32)}
TWO_LAYERS = ("model.layers=2", "model.channels=128", "model.heads=2", "model.vocab=1000")


def one_model(preset, micro, sequence=1024):
    """Keys of a model that a rank trains with one micro-batch per step, of synthetic tokens."""
    return (f"model.preset={preset}", f"data.sequence={sequence}", f"batch.micro={micro}", "batch.accumulation=1",
            "batch.global=0", "optimizer.schedule=constant", "kernels.gemm=auto", FLASH)


def of_layers(runner, layers):
    """Keys of a model with few layers, of heads of 64 channels."""
    return (*one_model("gpt2", 2, 32), *TWO_LAYERS) if runner.quick else (*one_model("gpt2", 16), f"model.layers={layers}")


def models(runner):
    """{name: keys}"""
    if runner.quick:
        return {name: (*one_model(*of), *TWO_LAYERS) for name, of in QUICK_MODELS.items()}
    return {name: one_model(*of) for name, of in MODELS.items()}


def attention_keys(runner, deck, keys=(), ranks=1):
    """{name: keys}: materialized, and every provider of this build that computes attention of the deck; in bf16 if it takes 16
    bits alone. \\throws OutOfTime; RuntimeError if there is none: flash takes everything"""
    found = {"materialized": ("model.attention=materialized",)}
    for more in ((), BF16):
        flash = (FLASH, *more)
        for name in runner.providers("kernels.attention", deck, [*keys, *flash], ranks):
            found.setdefault(name, (*flash, f"kernels.attention={name}"))
    if runner.left() < 1:
        raise OutOfTime
    if len(found) == 1:
        raise RuntimeError(f"no provider of attention takes {deck}")
    return found
