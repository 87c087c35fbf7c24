# scripts/sqlite-tests runs this before a test file, over SQLite with both engines. Tests ask for
# features by these names (ifcapable). LS-MVBT refuses this one, and files would end with that. Stock
# SQLite, with which it is compared, gets the same settings.
#
#     testfixture two-engines.tcl TEST.test

foreach absent {shared_cache} {set sqlite_options($absent) 0}

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
