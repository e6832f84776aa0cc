# The Python package of USRBIO, with the names of 3FS's: hf3fs_fuse.io has all functions.
"""Rings and shared memory for files on an ff mount (USRBIO). Use hf3fs_fuse.io."""
