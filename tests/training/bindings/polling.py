# How tests of the Python package wait: they poll a condition until it holds or a deadline passes.
import time


def until(condition, seconds=60, says=lambda: "timed out"):
    """What `condition` returns as soon as that is true; after `seconds`, fails with says()."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, says()
        time.sleep(0.02)
