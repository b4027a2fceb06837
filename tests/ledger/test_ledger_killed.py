"""Fits that are killed at any moment leave no release that the ledger does not know.

Two processes compete for one ledger and are killed at random. Each writes down what it was handed
only after it was handed it, so that the ledger must know at least as much.
"""

import os
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from pymc_dp import Ledger
from pymc_dp.accounting.accountants import divergences
from pymc_dp.ledger.file import fits_of
from pymc_dp.privacy.contribution import Query
from pymc_dp.privacy.wall import PrivacyWall
from tests.ledger.test_ledger import FORK, wall_with
from tests.plans import plan_from, release_from

KILLS, RELEASES = 10, 12
# no child takes that long for a release
DEADLOCK = 120.0


# a ledger of epsilon 1 holds about 100: two for each kill, while the process that is not killed
# goes on
PLAN = plan_from(
    (release_from("score", "poisson", 0.5, 1.0, 70.0, RELEASES),), "add_remove", 1e-5, "rdp"
)


def keep_fitting(ledger, log):
    """Fit again and again until the ledger refuses."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    while True:
        try:
            wall = wall_with(ledger, PLAN)
        except ValueError:
            return
        fit = wall._book_outside.fit
        for _ in range(RELEASES):
            wall.release(Query("score", None))
            os.write(file, b"%d\n" % fit)
            os.fsync(file)


class Outcome:
    """What the ledger and the processes remember of fits that were killed."""

    def __init__(self, ledger, logs, exits):
        handed_out = Counter(int(line) for log in logs for line in log.read_text().split())
        entries = fits_of(ledger.path)
        self.missing = sum(max(0, handed_out[e.fit] - e.booked) for e in entries)
        self.unknown = handed_out.keys() - {e.fit for e in entries}
        self.ahead = max(e.booked - handed_out[e.fit] for e in entries)
        self.cut_short = sum(e.booked < e.planned for e in entries)
        self.left, self.price = ledger.left.amount, entries[0].of_plan.rounded().amount
        self.exits = exits
        for entry in entries:
            ledger.settle(entry.fit)
        [price] = {line.price for entry in entries for line in entry.lines}
        self.settled, self.freed = ledger.spent.amount, ledger.left.amount - self.left
        self.drawn = handed_out.total() * price


def wait(child, log, rng):
    """Wait until a child was handed some releases, and then a little, whatever the disk's speed."""
    size = log.stat().st_size
    goal = size + rng.randrange(2 * RELEASES)
    while child.is_alive() and log.stat().st_size < goal:
        time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.02))


def join(child, log):
    """Wait until a child ends, for as long as it is handed releases."""
    size = -1
    while child.is_alive() and log.stat().st_size > size:
        size = log.stat().st_size
        child.join(DEADLOCK)


def kill_at_random(folder):
    """Keep two processes fitting, kill one at a time, and let the last two come to their end."""
    rng, logs = random.Random(0), []
    divergences(PLAN, (18.0,))  # children inherit what the accountant found
    ledger = Ledger(folder / "toy.ledger", epsilon=1.0, delta=1e-5, dataset="toy")

    def start():
        logs.append(folder / f"{len(logs)}.log")
        logs[-1].touch()
        child = FORK.Process(target=keep_fitting, args=(ledger, logs[-1]))
        child.start()
        return child, logs[-1]

    running = [start(), start()]
    for _ in range(KILLS):
        victim, log = running.pop(rng.randrange(2))
        wait(victim, log, rng)
        victim.kill()
        victim.join()
        assert victim.exitcode == -signal.SIGKILL, "the budget was spent before the kills were"
        running.append(start())
    for child, log in running:
        join(child, log)
    return Outcome(ledger, logs, [child.exitcode for child, _ in running])


@pytest.fixture
def memory(tmp_path):
    """A folder in memory, if there is one: what a killed process wrote needs no disk to survive."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_no_release_is_missing_however_a_fit_ends(memory):
    found = kill_at_random(memory)
    assert found.missing == 0
    assert not found.unknown
    assert found.cut_short > KILLS / 3  # the kills did hit fits on their way
    assert found.ahead <= 1  # one release was booked, and not handed out
    assert found.exits == [0, 0]  # no deadlock: the last two ran until they were refused
    assert 0 <= found.left < found.price
    # settled, they owe what was handed out and at most one release more each, and free the rest
    assert found.drawn <= found.settled <= found.drawn + KILLS * found.price / RELEASES
    assert found.freed > found.price


def test_booking_after_the_hand_out_is_caught(memory, monkeypatch):
    monkeypatch.setattr(PrivacyWall, "release", booked_afterwards(PrivacyWall.release))
    assert kill_at_random(memory).missing > 0


def booked_afterwards(release):
    """Return the planted fault: a release is booked when the next one is asked for."""

    def late(self, query):
        book, self._book_outside = self._book_outside, None
        if self.made:
            book(self.made[-1])
        noisy = release(self, query)
        self._book_outside = book
        return noisy

    return late
