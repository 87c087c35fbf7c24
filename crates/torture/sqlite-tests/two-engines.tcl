# Run by scripts/sqlite-tests before a test file, over SQLite with both engines: tests ask by these names (ifcapable)
# whether a thing is there. LS-MVBT refuses them, and many files would end with that. Stock SQLite, with which it is
# compared, is told the same.
#
#   testfixture two-engines.tcl TEST.test

foreach absent {vacuum shared_cache} {set sqlite_options($absent) 0}

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
