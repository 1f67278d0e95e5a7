"""When the stub spins before it sleeps."""

from __future__ import annotations

from pb_stub.spin import Spin


def test_without_budget() -> None:
    assert not Spin(0).worthwhile()


def test_waits_decide() -> None:
    spin = Spin(50_000)
    assert spin.worthwhile()
    for _ in range(40):
        spin.waited(1_000_000)
    assert not spin.worthwhile()
    for _ in range(40):
        spin.waited(1_000)
    assert spin.worthwhile()


def test_one_long_pause_is_soon_forgotten() -> None:
    spin = Spin(50_000)
    spin.waited(60_000_000_000)
    spin.waited(60_000_000_000)
    assert not spin.worthwhile()
    spin.waited(0)
    spin.waited(0)
    spin.waited(-5)
    spin.waited(0)
    spin.waited(0)
    assert spin.worthwhile()


def pauses(spin: Spin) -> int:
    count = 0
    while not spin.worthwhile():
        count += 1
    return count


def test_slow_yields_pause_it_for_longer_and_longer() -> None:
    spin = Spin(50_000)
    seen = []
    for _ in range(12):
        spin.slow()
        seen.append(pauses(spin))
    assert seen == [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024, 1024]


def test_clean_spins_halve_the_pause() -> None:
    spin = Spin(50_000)
    for _ in range(4):
        spin.slow()
        pauses(spin)
    for _ in range(64):
        spin.clean()
    spin.slow()
    assert pauses(spin) == 32
