"""What the processor has that decides what engines compute."""
import platform


def instructions():
    """Names of sets of instructions as Linux has them; none where they cannot be known."""
    try:
        with open("/proc/cpuinfo") as file:
            return set(next((line for line in file if line.startswith("flags")), "").split()[2:])
    except OSError:
        return set()


def has_vnni():
    """Whether products of bytes cannot saturate; None where that cannot be known."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    found = instructions()
    return bool({"avx512_vnni", "avx_vnni"} & found) if found else None


def has_avx512_vnni():
    """Whether the kernels are those of AVX-512 with VNNI."""
    return platform.machine() in ("x86_64", "AMD64") and "avx512_vnni" in instructions()
