#!/usr/bin/env python3
"""A second simulator of pipelines, written from the definition. It reads the instructions that `trainstone explain pipeline
--json` prints for every schedule on 1 to 8 stages, 1 to 32 micro-batches and 1 to 4 chunks, and finds the same times, slots
and messages.

usage: step_program_simulator_test.py TRAINSTONE

The definition. The instructions of a stage end one after another. What computes takes its price. Starts take no time. The
n-th send of a channel belongs to its n-th receive; the message ends `message` after both have been posted, and a wait ends
when the message has ended. So the instructions are a graph, and the time is its longest path.
"""
import collections
import fractions
import json
import os
import subprocess
import sys
import unittest

COMPUTES = {"forward": "F", "backward": "B", "weights": "W"}
MESSAGE = "0.001"  # many of them are shorter than an operation


def lines(schedule, backward):
    arguments = ["explain", "pipeline", schedule, "--stages", "1:8", "--micro-batches", "1:32", "--chunks", "1:4",
                 "--forward", "1", "--backward", backward, "--message", MESSAGE, "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    outcome = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=True, env=environment)
    return [json.loads(line) for line in outcome.stdout.splitlines()]


class Pipeline:
    """The graph of one explanation. A node is (stage, place in its list)."""

    def __init__(self, explained):
        self.explained = explained
        self.p, self.m, self.v = (explained[key] for key in ("stages", "micro_batches", "chunks"))
        self.lists = [program["instructions"] for program in explained["programs"]]
        self.splits = any(one["act"] == "weights" for one in self.lists[0])
        self.partners = self.match_messages()

    def message(self, stage, one):
        """(kind, sender, receiver, micro-batch, virtual stage of the reader) as this end of it says."""
        sends = one["act"].endswith("send")
        step = 1 if one["kind"] == "activation" else -1
        virtual = one["chunk"] * self.p + stage
        other = (stage + step) % self.p if sends else (stage - step) % self.p
        ends = (stage, other) if sends else (other, stage)
        return (one["kind"], *ends, one["micro_batch"], virtual + step if sends else virtual)

    def match_messages(self):
        """For every message: the nodes that post its two ends. The ends of a channel meet in order."""
        sent, received = collections.defaultdict(list), collections.defaultdict(list)
        for stage, instructions in enumerate(self.lists):
            for place, one in enumerate(instructions):
                if one["act"] in ("send", "receive"):
                    message = self.message(stage, one)
                    (sent if one["act"] == "send" else received)[message[:3]].append((message, (stage, place)))
        assert sent.keys() == received.keys(), "a channel has one end"
        partners = {}
        for channel, sends in sent.items():
            assert len(sends) == len(received[channel]), "a send without receive"
            for (message, start), (other, post) in zip(sends, received[channel]):
                assert message == other, f"{message} meets {other}"
                assert message not in partners, f"{message} twice"
                partners[message] = (start, post)
        return partners

    def price(self, stage, one):
        if one["act"] not in COMPUTES:
            return 0
        price = self.explained["programs"][stage]["chunks"][one["chunk"]]
        takes = price[one["act"]]
        if one["act"] == "backward" and not self.splits:
            takes += price["weights"]
        if one["act"] == "forward" and one["chunk"] * self.p + stage == self.p * self.v - 1:
            takes += self.explained["head"]
        return takes

    def ends(self, message_time):
        """The end of every instruction, by stage: a topological order of the graph."""
        after = collections.defaultdict(list)  # of a node that posts one end of a message: the nodes that wait for it
        missing = {}  # by node: posts that it waits for, and that have not ended
        for stage, instructions in enumerate(self.lists):
            for place, one in enumerate(instructions):
                if one["act"].startswith("wait"):
                    posts = self.partners[self.message(stage, one)]
                    missing[stage, place] = len(posts)
                    for post in posts:
                        after[post].append((stage, place))
        ready_at = collections.defaultdict(int)
        ends = [[] for _ in self.lists]
        ready = [(stage, 0) for stage in range(self.p)]
        while ready:
            node = stage, place = ready.pop()
            if place >= len(self.lists[stage]) or len(ends[stage]) != place or missing.get(node, 0):
                continue
            one = self.lists[stage][place]
            begin = ends[stage][-1] if place else 0
            ends[stage].append(max(begin, ready_at[node]) + self.price(stage, one))
            for waiting in after[node]:
                missing[waiting] -= 1
                ready_at[waiting] = max(ready_at[waiting], ends[stage][-1] + message_time)
                ready.append(waiting)
            ready.append((stage, place + 1))
        assert all(len(done) == len(all_of_it) for done, all_of_it in zip(ends, self.lists)), "waits for ever"
        return ends

    def time(self, ends):
        return max(end for instructions, times in zip(self.lists, ends)
                   for one, end in zip(instructions, times) if one["act"] in COMPUTES)

    def check_order(self):
        """Everything is computed once, and after what it needs."""
        for stage, instructions in enumerate(self.lists):
            done = [(COMPUTES[one["act"]], one["micro_batch"], one["chunk"]) for one in instructions if one["act"] in COMPUTES]
            acts = "FBW" if self.splits else "FB"
            assert sorted(done) == sorted((act, j, c) for act in acts for j in range(self.m) for c in range(self.v))
            at = {operation: place for place, operation in enumerate(done)}
            for act, j, c in done:
                if act != "F":
                    assert at["FB"["BW".index(act)], j, c] < at[act, j, c], (stage, act, j, c)

    def slots(self, ends):
        """By stage: the largest number of chunks that are kept at a time. No slot keeps two."""
        last = "weights" if self.splits else "backward"
        peaks = []
        for stage, instructions in enumerate(self.lists):
            kept, peak = {}, 0
            for place, one in enumerate(instructions):
                if one["act"] == "forward":
                    assert one["slot"] not in kept, "a slot that is used"
                    kept[one["slot"]] = (one["micro_batch"], one["chunk"])
                elif one["act"] in COMPUTES:
                    assert kept[one["slot"]] == (one["micro_batch"], one["chunk"]), "the wrong slot"
                    if one["act"] == last:
                        del kept[one["slot"]]
                peak = max(peak, len(kept))
            peaks.append(peak)
        return peaks


def closed_forms(schedule, p, m, v, f, b, w):
    """(time, slots by stage, exposed messages or None): the third time that they are written."""
    F = fractions.Fraction
    share = {"naive": F(p - 1), "gpipe": F(p - 1, m), "1f1b": F(p - 1, m), "1f1b-eager": F(p - 1, m), "interleaved": F(p - 1, v * m)}
    ideal = m * (f + b + w)
    if schedule == "zb-h1":
        time = ideal + (p - 1) * (f + b - w) if m >= p else (m + p - 1) * (f + b) + w
    else:
        time = ideal * (1 + share[schedule])
    slots = {"naive": lambda i: 1, "gpipe": lambda i: m, "1f1b": lambda i: min(m, p - i),
             "1f1b-eager": lambda i: min(m, 2 * (p - i) - 1), "zb-h1": lambda i: min(m, p),
             "interleaved": lambda i: min(m * v, 2 * (p - i) - 1 + (v - 1) * p)}[schedule]
    turns = F(2 * (p - 1) * m, p) + 2 * (p - 2) if m % p == 0 and p > 1 else None
    exposed = {"naive": 2 * (p - 1) * m, "gpipe": 2 * (p - 1), "1f1b": turns, "1f1b-eager": 2 * (p - 1),
               "zb-h1": 4 * (p - 1) if m > p and f == b == w else None, "interleaved": 2 * (p * v - 1)}[schedule]
    return time, [slots(i) for i in range(p)], exposed


class SecondSimulator(unittest.TestCase):
    def check(self, explained):
        pipeline = Pipeline(explained)
        unit = explained["ticks_per_unit"]
        message = explained["message"]
        self.assertEqual(message * 1000, unit)
        pipeline.check_order()
        ends, free = pipeline.ends(message), pipeline.ends(0)
        time, free_time = pipeline.time(ends), pipeline.time(free)
        self.assertEqual(explained["time"], time)
        self.assertEqual(explained["exposed"], time - free_time)
        self.assertEqual([[one["end"] for one in instructions] for instructions in pipeline.lists], ends)
        self.assertEqual(explained["messages"], len(pipeline.partners))
        self.assertEqual(len(pipeline.partners), 2 * pipeline.m * (pipeline.p * pipeline.v - 1))
        slots = pipeline.slots(ends)
        self.assertEqual([program["slots"] for program in explained["programs"]], slots)
        self.assertEqual([max(used for _, used in program["slots_in_use"]) for program in explained["programs"]], slots)
        price = explained["programs"][0]["chunks"][0]
        times = [pipeline.v * price[part] for part in ("forward", "backward", "weights")]
        taught = closed_forms(explained["schedule"], pipeline.p, pipeline.m, pipeline.v, *times)
        self.assertEqual(taught[:2], (free_time, slots))
        if taught[2] is not None:
            self.assertEqual(taught[2] * message, time - free_time)

    def test_every_schedule(self):
        checked = 0
        for schedule in ("naive", "gpipe", "1f1b", "1f1b-eager", "interleaved", "zb-h1"):
            for backward in ("1", "2"):
                for explained in lines(schedule, backward):
                    with self.subTest(schedule=schedule, backward=backward,
                                      **{key: explained[key] for key in ("stages", "micro_batches", "chunks")}):
                        self.check(explained)
                    checked += 1
        self.assertEqual(checked, 2 * (5 * 256 + 4 * 53))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
