#!/usr/bin/env python3
# The wheel of the Python package of rings: `ninja wheel` copies this file, the package, and the
# module that CMake has built into one folder of the build, and runs it there.
"""Usage: setup.py bdist_wheel. The environment has FF_VERSION, FF_MODULE (the built module) and
FF_PLATFORM (the platform tag of the wheel)."""
import os
import shutil

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class CopyModule(build_ext):
    """CMake has compiled the module: it only has to get its place in the wheel."""

    def build_extension(self, ext):
        place = self.get_ext_fullpath(ext.name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy(ext.sources[0], place)


setup(
    name="hf3fs_py_usrbio",  # as 3FS names its own
    version=os.environ["FF_VERSION"],
    description="Reads and writes of files on an ff or 3FS mount in batches, by shared memory",
    license="MIT",
    python_requires=">=3.11",  # the stable ABI of python_objects.h
    packages=["hf3fs_fuse"],
    ext_modules=[Extension("hf3fs_py_usrbio", [os.environ["FF_MODULE"]], py_limited_api=True)],
    cmdclass={"build_ext": CopyModule},
    options={"bdist_wheel": {"py_limited_api": "cp311", "plat_name": os.environ["FF_PLATFORM"]}},
)
