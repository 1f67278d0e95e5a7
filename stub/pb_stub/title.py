"""What `ps` and `top` show of a process: its command line, which a forked stub writes over that of the template, and
its name."""

from __future__ import annotations


def area() -> tuple[int, int] | None:
    """Where the arguments of this process lie, address and size; None if that cannot be found out or written."""
    try:
        import ctypes  # noqa: F401  # `write` needs it

        with open("/proc/self/stat", "rb") as stat:
            # The program's name, in parentheses, may hold anything; after it come fields 3 and on.
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[48 - 3]), int(fields[49 - 3])
    except (ImportError, OSError, ValueError, IndexError):
        return None
    return (start, end - start) if 0 < start < end else None


def write(where: tuple[int, int], title: str) -> None:
    """Show title, cut to the room that there is."""
    import ctypes

    address, size = where
    text = title.encode("utf-8", "backslashreplace")[: size - 2]
    # Where the last byte is not zero the kernel shows the text up to the first zero, not the whole area.
    ctypes.memmove(address, text + bytes(size - 1 - len(text)) + b"\1", size)


def name_process(name: str) -> None:
    """Set what `ps -o comm` and psutil's `name()` show of the calling thread, the main one, and threads to come.

    The kernel keeps 15 bytes. It shows so many of the name of Triton's stub, too.
    """
    try:
        with open("/proc/self/comm", "wb", buffering=0) as comm:
            comm.write(name.encode()[:15])
    except OSError:
        pass
