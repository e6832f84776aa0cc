# How tests of the Python package wait: they poll a condition until it holds or a deadline passes.
import time


def until(condition, seconds=60, says=lambda: "timed out", progress=lambda: None):
    """What `condition` returns as soon as that is true; after `seconds` in which progress() has
    returned the same value, fails with says()."""
    end = time.monotonic() + seconds
    before = progress()
    while True:
        found = condition()
        if found:
            return found
        now = progress()
        if now != before:
            before, end = now, time.monotonic() + seconds
        assert time.monotonic() < end, says()
        time.sleep(0.02)
