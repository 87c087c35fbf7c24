"""Why a file cannot be the extension of this process.

The system's loader ends the program at a library that is cut short, and says "No such file" of one for
another machine.
"""

from __future__ import annotations

import os
import struct
from typing import Optional, Tuple

_HEADER = 64
#: `e_machine` of elf(5).
_MACHINES = {3: "x86", 40: "ARM", 62: "x86_64", 183: "aarch64", 243: "RISC-V"}


def why_not(path: str) -> Optional[str]:
    """The reason, or None for a whole library of this machine."""
    header = _header(path)
    if header is None:
        return "it is no shared library"
    if os.path.getsize(path) < _end(header):
        return "it is cut short"
    own = _header("/proc/self/exe")
    if own is not None and _machine(own) != _machine(header):
        return f"it is for {_machine(header)}, and this Python is for {_machine(own)}"
    return None


def _header(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            header = file.read(_HEADER)
    except OSError:
        return None
    return header if len(header) == _HEADER and header.startswith(b"\x7fELF") else None


def _is_64(header: bytes) -> bool:
    return header[4] == 2


def _end(header: bytes) -> int:
    """That of the table of sections, which linkers write last."""
    layout: Tuple[str, int, int] = ("<Q", 40, 58) if _is_64(header) else ("<I", 32, 46)
    start = int(struct.unpack_from(layout[0], header, layout[1])[0])
    bytes_each, count = struct.unpack_from("<HH", header, layout[2])
    return start + int(bytes_each) * int(count)


def _machine(header: bytes) -> str:
    number = int(struct.unpack_from("<H", header, 18)[0])
    return f"{_MACHINES.get(number, f'machine {number}')}, {64 if _is_64(header) else 32} bits"
