"""The packages that scripts/release makes of the files that it has built.

Each module has `make(targets)`, which writes into dist/, and `test(target)`, which installs what was made
into a clean place. `TOOLS` and `TEST_TOOLS` name the programs that they run.
"""
