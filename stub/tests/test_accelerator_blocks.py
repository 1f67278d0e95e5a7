"""Loans and blocks of the compiled part of the stub against their counterparts in Python."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from blocks import World
from c_python_backend_utils.tensor import Tensor
from pb_stub import accelerator
from pb_stub.loans import Loan
from pb_stub.pool import Block

STEPS = 40_000 if os.environ.get("NEREID_TEST_LONG") else 4_000

needed = pytest.mark.skipif(accelerator.module is None, reason=accelerator.reason)


def life(seed: int, implementation: str) -> tuple[list[str], int]:
    """Return what happens in a random life, and how many outputs Python has placed."""
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, (here.parent, here.parents[1] / "pyutils")))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", accelerator.VARIABLE: implementation}
    done = subprocess.run(
        [sys.executable, str(here / "blocks.py"), str(seed), str(STEPS)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines(), sum(map(int, done.stderr.split()))


@needed
@pytest.mark.parametrize("seed", [1, 1000])
def test_both_lend_and_return_the_same(seed: int) -> None:
    lines, _ = life(seed, "off")
    others, placed = life(seed, "on")
    for line, other in zip(lines, others):
        assert line == other
    assert len(lines) == len(others)
    assert placed < sum(line.startswith("('send', [") for line in lines)  # most are not left to Python


@needed
def test_nothing_leaks() -> None:
    """The memory of this process stays the same however often blocks are lent and returned."""
    world = World(3)
    world.confuse = lambda: None  # type: ignore[method-assign]

    def references() -> int:
        return sum(sys.getrefcount(o) for o in (None, True, False, 0, 1, 2, "IN0", Tensor, Loan, Block, np.ndarray))

    def work(steps: int) -> tuple[int, int]:
        for _ in range(steps):
            world.step()
        world.inputs.clear()
        world.kept.clear()
        world.outputs.clear()
        world.channel.released.clear()
        world.places.clear()
        world.channel.tickets.clear()
        world.channel.executing = False
        world.returned()
        while world.sent:
            world.returned()
        world.pool.collect()
        gc.collect()
        return references(), sys.getallocatedblocks()

    work(2000)
    before = work(500)
    after = work(4000)
    # One leaked object or reference in each send would be 1000.
    assert after[0] - before[0] < 100
    assert after[1] - before[1] < 400
    assert not world.loans.lent
    assert world.pool.used == world.pool._outstanding == 0
