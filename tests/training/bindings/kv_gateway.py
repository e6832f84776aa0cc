# A gateway of a store of keys and values, for tests of the Python package.
import atexit
import os
import signal
import subprocess


class Gateway:
    """`ff serve-kv` on a folder; without settings it has no key."""

    def __init__(self, ff, folder, *words, **settings):
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        env.update(settings if settings else {"FF_INSECURE": "1"})
        if not settings:
            os.environ["FF_INSECURE"] = "1"  # of its clients
        self.process = subprocess.Popen([ff, "serve-kv", folder, "--listen", "127.0.0.1:0", *words],
                                        env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        atexit.register(self.process.kill)
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), f"the gateway has not started: {line!r}"
        self.address = line.split()[-1]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.kill()
