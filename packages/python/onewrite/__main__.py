"""The `onewrite` command of this package."""

import os
import sys
from typing import NoReturn

from ._library import PROGRAMS


def main() -> NoReturn:
    program = os.path.join(PROGRAMS, "onewrite")
    if not os.path.isfile(program):
        sys.exit(f"onewrite: this package has no command ({program}): install the wheel for this machine")
    os.execv(program, ["onewrite", *sys.argv[1:]])


if __name__ == "__main__":
    main()
