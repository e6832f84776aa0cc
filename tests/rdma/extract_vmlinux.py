#!/usr/bin/env python3
# extract_vmlinux.py BZIMAGE VMLINUX: unpacks the ELF kernel of a Debian kernel image (xz). QEMU
# starts it directly, which saves the three seconds that the guest needs to unpack it itself.
import lzma
import sys

image = open(sys.argv[1], "rb").read()
start = image.find(b"\xfd7zXZ\x00")
if start < 0:
    sys.exit(f"{sys.argv[1]}: no xz payload")
kernel = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(image[start:])
if kernel[:4] != b"\x7fELF":
    sys.exit(f"{sys.argv[1]}: the payload is no ELF file")
open(sys.argv[2], "wb").write(kernel)
