# Run by scripts/sqlite-tests before a test file, over SQLite with both engines: tests ask by these names (ifcapable)
# whether what they are about is there, and LS-MVBT has it not. Stock SQLite, with which it is compared, runs the same.
#
#   testfixture two-engines.tcl TEST.test

foreach absent {vacuum autovacuum shared_cache wal} {set sqlite_options($absent) 0}

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
