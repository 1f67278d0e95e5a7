"""The title of a process in `ps` and `top`: its command line and its name."""

from __future__ import annotations


def area() -> tuple[int, int] | None:
    """Return address and size of this process's arguments; None if unknown or not writable."""
    try:
        import ctypes  # noqa: F401  # `write` needs it

        with open("/proc/self/stat", "rb") as stat:
            # The program's name, in parentheses, may contain anything; fields 3 and later follow
            # it.
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[48 - 3]), int(fields[49 - 3])
    except (ImportError, OSError, ValueError, IndexError):
        return None
    return (start, end - start) if 0 < start < end else None


def write(where: tuple[int, int], title: str) -> None:
    """Write title, truncated to the available room."""
    import ctypes

    address, size = where
    text = title.encode("utf-8", "backslashreplace")[: size - 2]
    # If the last byte is not zero, the kernel shows the text up to the first zero, not the whole
    # area.
    ctypes.memmove(address, text + bytes(size - 1 - len(text)) + b"\1", size)


def name_process(name: str) -> None:
    """Set the name in `ps -o comm` and psutil's `name()` of this, the main, and later threads.

    The kernel keeps 15 bytes. For Triton's stub too, it shows only these.
    """
    try:
        with open("/proc/self/comm", "wb", buffering=0) as comm:
            comm.write(name.encode()[:15])
    except OSError:
        pass
