#!/usr/bin/env python3
# Whether the PTX of ff-gpu's kernels is what nvcc makes of their source, and whether NVIDIA's
# assembler takes it for every kind of GPU. Writes it with --write.
"""usage: gpu_kernels.py FOLDER [--write]: core/ops/validate"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
NVCC = "13.0"  # that the files in the tree are from
# By the oldest GPUs that have them: what nvcc compiles for, and the version of PTX that they need,
# so that drivers since CUDA 11 take them.
KERNELS = {70: ("compute_75", "6.4"), 80: ("compute_80", "7.0")}
TARGETS = {70: ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120"), 80: ("sm_80", "sm_90", "sm_120")}


def find(program):
    return shutil.which(program) or shutil.which(program, path="/usr/local/cuda/bin")


def make_ptx(nvcc, folder, kernels):
    arch, version = KERNELS[kernels]
    with tempfile.TemporaryDirectory() as scratch:
        made = os.path.join(scratch, "kernels.ptx")
        subprocess.run([nvcc, "-ptx", f"-arch={arch}", "-std=c++17", f"-DFF_KERNELS={kernels}",
                        "-I", os.path.join(folder, "../.."),
                        os.path.join(folder, "ff_gpu_kernels.cu"), "-o", made], check=True)
        with open(made, encoding="ascii") as file:
            text = file.read()
    text = re.sub(r"^\.version .*$", f".version {version}", text, count=1, flags=re.M)
    text = re.sub(r"^\.target .*$", f".target sm_{kernels}", text, count=1, flags=re.M)
    lines = [line.split("//")[0].rstrip() for line in text.splitlines()]
    return (f"// Made of ff_gpu_kernels.cu by nvcc {NVCC} (tests/ops/validate/gpu_kernels.py).\n" +
            "".join(line + "\n" for line in lines if line))


def main():
    folder = sys.argv[1]
    nvcc, ptxas = find("nvcc"), find("ptxas")
    if not nvcc or not ptxas:
        print("no nvcc on this machine")
        return SKIPPED
    release = re.search(r"release ([\d.]+)", subprocess.run(
        [nvcc, "--version"], check=True, capture_output=True, text=True).stdout)
    is_same = release is not None and release[1] == NVCC
    for kernels, targets in TARGETS.items():
        path = os.path.join(folder, f"ff_gpu_kernels_{kernels}.ptx")
        made = make_ptx(nvcc, folder, kernels)
        if "--write" in sys.argv:
            with open(path, "w", encoding="ascii") as file:
                file.write(made)
        with open(path, encoding="ascii") as file:
            assert not is_same or file.read() == made, f"{path} is not what nvcc makes: --write"
        for target in targets:
            subprocess.run([ptxas, f"-arch={target}", path, "-o", "/dev/null"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
