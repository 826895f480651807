"""A GPT-2 training step in PyTorch, for perf/compare/pytorch, which starts this program and talks to it.

usage: python pytorch_step.py JSON
JSON has the shape, batch and optimizer of a deck. Prints one line of JSON when it is warm. Then, for every line
"UNTIMED TIMED" on its standard input, it trains so many steps and prints the timed ones; without a line it sleeps. It ends
with its input. Exit 77: this Python has no PyTorch.

It is PyTorch as its users write it for speed: scaled_dot_product_attention, a fused AdamW, gradients set to None, batches
that are made before the clock starts. It is the same model as Trainstone's: biases everywhere, GELU by tanh, a vocabulary
padded to a multiple of 128, and an output layer that is the embedding.
"""
import json
import math
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as problem:
    print(f"{sys.executable} has no PyTorch ({problem})", file=sys.stderr)
    sys.exit(77)

INITIAL_DEVIATION = 0.02
SUCCESSOR_PROBABILITY = 0.9
BATCHES = 64  # different ones; then they come again
LEAST_WARM_UP, MOST_WARM_UP = {"eager": 1, "compiled": 2}, 3  # steps; the first one compiles


class Block(nn.Module):
    def __init__(self, heads, channels):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(channels)
        self.query_key_value = nn.Linear(channels, 3 * channels)
        self.attention_projection = nn.Linear(channels, channels)
        self.norm_2 = nn.LayerNorm(channels)
        self.expansion = nn.Linear(channels, 4 * channels)
        self.projection = nn.Linear(4 * channels, channels)

    def forward(self, x):  # (B, T, C)
        batch, sequence, channels = x.shape
        parts = self.query_key_value(self.norm_1(x)).split(channels, dim=2)
        query, key, value = (part.view(batch, sequence, self.heads, -1).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_projection(attended.transpose(1, 2).reshape(batch, sequence, channels))
        return x + self.projection(functional.gelu(self.expansion(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, config):
        super().__init__()
        channels = config["channels"]
        self.padded_vocab = -(-config["vocab"] // 128) * 128
        self.tokens = nn.Embedding(self.padded_vocab, channels)
        self.positions = nn.Embedding(config["context"], channels)
        self.blocks = nn.ModuleList(Block(config["heads"], channels) for _ in range(config["layers"]))
        self.norm = nn.LayerNorm(channels)
        for name, parameter in self.named_parameters():
            # Without smaller residual projections, and with PyTorch's larger initial embeddings, gradients of deep models
            # become subnormal, which processors handle slowly: an fp32 step was seen to take three times as long.
            residual = name.endswith("projection.weight")
            if parameter.dim() == 2:
                nn.init.normal_(parameter, 0, INITIAL_DEVIATION / (math.sqrt(2 * config["layers"]) if residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, inputs, targets):  # both (B, T)
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1], device=inputs.device))
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, self.padded_vocab), targets.view(-1))


class Training:
    def __init__(self, config):
        self.config = config
        self.model = Gpt(config).to(config["device"])
        self.forward = torch.compile(self.model) if config["mode"] == "compiled" else self.model
        decay = [one for one in self.model.parameters() if one.dim() == 2 or config["decay"] == "all"]
        rest = [one for one in self.model.parameters() if one.dim() != 2 and config["decay"] != "all"]
        groups = [{"params": decay, "weight_decay": config["weight_decay"]}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=config["lr"],
                                           betas=tuple(config["betas"]), eps=config["eps"], fused=True)
        self.batches = make_batches(config)
        self.steps = 0

    def step(self):
        """Seconds and loss."""
        inputs, targets = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        start = time.perf_counter()
        with torch.autocast(self.config["device"], dtype=torch.bfloat16, enabled=self.config["precision"] == "bf16"):
            loss = self.forward(inputs, targets)
        loss.backward()
        if self.config["clip"] > 0:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config["clip"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        value = loss.item()  # after all that was asked of a GPU before
        return time.perf_counter() - start, value

    def parameters(self):
        """Without the padding of the vocabulary."""
        padding = (self.model.padded_vocab - self.config["vocab"]) * self.config["channels"]
        return sum(parameter.numel() for parameter in self.model.parameters()) - padding


def make_batches(config):
    """Pairs of inputs and targets, (B, T) each, of tokens like those of data.source = "synthetic"."""
    vocab, batch, sequence = config["vocab"], config["batch"], config["sequence"]
    factor = next(one for one in range(vocab // 3 + 1, 2 * vocab + 2) if math.gcd(one, vocab) == 1)
    shift = vocab // 2
    tokens = torch.empty(BATCHES, batch, sequence + 1, dtype=torch.int64)
    drawn = torch.randint(0, vocab, tokens.shape)
    follows = torch.rand(tokens.shape) < SUCCESSOR_PROBABILITY
    tokens[:, :, 0] = drawn[:, :, 0]
    for position in range(1, sequence + 1):
        successor = (factor * tokens[:, :, position - 1] + shift) % vocab
        tokens[:, :, position] = torch.where(follows[:, :, position], successor, drawn[:, :, position])
    tokens = tokens.to(config["device"])
    return [(one[:, :-1].contiguous(), one[:, 1:].contiguous()) for one in tokens]


def warm_up(training, patience):
    """Seconds and losses of the first steps. Slow ones are few."""
    steps, start = [], time.perf_counter()
    while len(steps) < LEAST_WARM_UP[training.config["mode"]] or (
            len(steps) < MOST_WARM_UP and time.perf_counter() - start < patience):
        steps.append(training.step())
    return steps


def capability(device):
    """What computes."""
    return torch.cuda.get_device_name() if device == "cuda" else torch.backends.cpu.get_cpu_capability()


def give_back(device):
    """What steps alone need of a GPU's memory: the other program has its turn."""
    if device == "cuda":
        torch.cuda.empty_cache()


def show(steps, **more):
    seconds, losses = zip(*steps)
    print(json.dumps({"seconds": seconds, "losses": losses, **more}), flush=True)


def main():
    config = json.loads(sys.argv[1])
    torch.set_num_threads(config["threads"])
    torch.manual_seed(config["seed"])
    training = Training(config)
    steps = warm_up(training, config["warm_up_seconds"])
    give_back(config["device"])
    show(steps, torch=torch.__version__, parameters=training.parameters(), capability=capability(config["device"]))
    for line in sys.stdin:
        untimed, timed = map(int, line.split())
        for _ in range(untimed):
            training.step()
        steps = [training.step() for _ in range(timed)]
        give_back(config["device"])
        show(steps)


main()
