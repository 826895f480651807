"""What the system gives a run, beside what was predicted: nothing is compared that both have from one place."""
import os
import re

from support import Deck, run, settings, start
from training import TrainingTest

DOES_NOT_FIT = 69


class Resident(TrainingTest):
    def assert_resident(self, layers, *keys, ranks=1):
        """What two runs have in common, as libraries and their buffers, drops out. Large pages and the allocator may take some
        more than is asked for."""
        runs = [start("run", Deck({"model.channels": "256", "model.layers": str(count), "data.steps": "2",
                                   "data.validate_every": None, "data.validation_fraction": None,
                                   "kernels.gemm": '"kokkos"'}).path, *settings(*keys), ranks=ranks) for count in layers]
        small, large = (self.assert_ended(future.result(), 0, "memory-model").result for future in runs)
        if small["machine"]["device"]:
            self.skipTest("the model is in a device's memory")
        predicted = large["predicted"]["memory_bytes"]["total"] - small["predicted"]["memory_bytes"]["total"]
        resident = large["resident_bytes"] - small["resident_bytes"]
        self.assertGreater(predicted, 200e6)  # so that what the system rounds up is little
        self.assertLess(resident, 1.1 * predicted + 32e6)
        self.assertGreater(resident, 0.5 * predicted)  # else it was not measured: all of this is used

    def test_a_larger_model_takes_no_more_memory_of_the_system_than_is_predicted(self):
        self.assert_resident((1, 17))

    def test_a_shard_with_a_master_copy_takes_no_more_memory_of_the_system_than_is_predicted(self):
        self.assert_resident((1, 33), "parallel.strategy=zero", "parallel.zero_stage=3", "precision.recipe=mixed16", ranks=2)


class Saved(TrainingTest):
    def test_saving_a_model_takes_little_memory_beside_it(self):
        """The ranks share a core: such runs measure no bandwidth, for which others take more memory than for this model."""
        cores = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {min(cores)})  # of this thread and what it starts; other threads keep theirs
        deck = Deck({"model.channels": "512", "model.layers": "4", "data.steps": "2", "data.validate_every": None,
                     "data.validation_fraction": None})
        alone, saving = (self.assert_ended(run("run", deck.path, *settings(*keys), ranks=2), 0, "memory-model")
                         for keys in ((), ("model.save=model.bin",)))
        self.assertNotIn(" x floor ", alone.out + saving.out)
        model = (saving.folder / "model.bin").stat().st_size
        self.assertGreater(model, 50e6)
        self.assertLess(abs(saving.peak_bytes - alone.peak_bytes), model / 4, f"{alone}{saving}")


class AddressSpace(TrainingTest):
    """A limit per process, as `ulimit -v` sets it."""

    def limited(self, limit, *keys):
        deck = Deck({"model.channels": "512", "model.layers": "16", "data.steps": "2", "data.validate_every": None,
                     "data.validation_fraction": None, "batch.micro": "1", "batch.global": "4"})
        wrapper = ("bash", "-c", f'ulimit -v {limit >> 10}; exec "$@"', "limited")
        return run("run", deck.path, *settings("kernels.gemm=kokkos", *keys), ranks=4, wrapper=wrapper)

    def test_a_model_that_does_not_fit_trains_on_stages(self):
        def missing(outcome):
            """Bytes that a rank needs, and has left."""
            self.assertEqual(outcome.code, DOES_NOT_FIT, outcome)
            found = re.search(r"1 rank on this process needs ([0-9.]+) MiB and it has ([0-9.]+) MiB", outcome.err)
            self.assertTrue(found, outcome)
            return [float(number) * 2 ** 20 for number in found.groups()]

        stages = ("parallel.pipeline=4", "memory.recompute=full")
        limit, enough = 1 << 30, 1 << 40
        alone, left = missing(self.limited(limit))
        on_stages = self.limited(enough, *stages).result["predicted"]["memory_bytes"]["total"]
        self.assertGreater(alone, on_stages + 400e6)
        between = int(limit - left + (alone + on_stages) / 2)
        missing(self.limited(between))
        self.assert_ended(self.limited(between, *stages), 0, "memory-model")
