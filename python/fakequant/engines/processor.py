"""Instruction sets of the processor that change the results of engines."""
import platform


def instructions():
    """Returns the names of instruction sets in /proc/cpuinfo, an empty set if it cannot be read."""
    try:
        with open("/proc/cpuinfo") as file:
            return set(next((line for line in file if line.startswith("flags")), "").split()[2:])
    except OSError:
        return set()


def has_vnni():
    """Returns whether the processor has VNNI, so that byte products cannot saturate; None if it is unknown."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    found = instructions()
    return bool({"avx512_vnni", "avx_vnni"} & found) if found else None


def has_avx512_vnni():
    """Returns whether the processor has AVX-512 VNNI."""
    return platform.machine() in ("x86_64", "AMD64") and "avx512_vnni" in instructions()
