# Run by scripts/sqlite-tests before a test file, in our modes. Where a test asks whether <db>-wal exists
# and how large it is, copies it or deletes it, it means the log, which is <db>-onewrite in the guarded
# modes; and by its size it means the frames, not the blocks that are prepared behind them. What a test
# reads from the file or writes into it is another matter: see docs/sqlite-test-suite.md.
#
#   testfixture adapter.tcl TEST.test

rename file file_of_tcl

# The log beside the database that a -wal file's name belongs to; "" where there is none, or where
# there is a -wal file.
proc log_beside {name} {
  if {![string match *-wal $name] || [file_of_tcl exists $name]} {return ""}
  set log [string range $name 0 end-4]-onewrite
  if {[file_of_tcl isfile $log]} {return $log}
  return ""
}

# Whether the database is guarded. By another process: to close the database here would drop SQLite's
# locks on it.
proc is_guarded {database} {
  if {![file_of_tcl isfile $database]} {return 0}
  expr {[string trim [exec od -An -tu1 -j19 -N1 $database]] eq "161"}
}

# How many frames of this life of the log are in an open file, whose headers are at OFFSET + i*SLOT. They
# are the first ones, so the last is found by halving. Every restart of the log adds one to the first
# salt; zeros are no frame.
proc frames_written {in offset slot salt checkpoints} {
  seek $in 0 end
  set frames 0
  set end [expr {([tell $in]-$offset+$slot-24)/$slot}]
  while {$frames<$end} {
    set i [expr {($frames+$end)/2}]
    seek $in [expr {$offset + $i*$slot}]
    binary scan [read $in 24] IuIuIu number commit its_salt
    if {$number!=0 && (($salt-$its_salt)&0xffffffff)<=$checkpoints} {
      set frames [expr {$i+1}]
    } else {
      set end $i
    }
  }
  return $frames
}

# In journal mode direct: the size of a -wal file without the blocks that are prepared, "" where it is
# not there or not a log.
proc direct_size {name} {
  if {![string match *-wal $name] || ![file_of_tcl isfile $name]} {return ""}
  set in [open $name rb]
  fconfigure $in -buffersize 128
  set fields [binary scan [read $in 32] IuIuIuIuIu magic format page checkpoints salt]
  set size ""
  if {$fields==5 && $magic==0} {
    set size 0
  } elseif {$fields==5} {
    set slot [expr {24+$page}]
    set size [expr {32 + $slot*[frames_written $in 32 $slot $salt $checkpoints]}]
  }
  close $in
  return $size
}

# The size that SQLite's own log would have, "" where it would not be there: up to the last frame that
# was written since the log was opened first. docs/formats.md has the layouts.
proc wal_size {name} {
  if {[info exists ::env(SQLITE_TESTS_DIRECT)]} {return [direct_size $name]}
  set log [log_beside $name]
  if {$log eq ""} {return ""}
  set in [open $log rb]
  fconfigure $in -buffersize 128
  set head [read $in 128]
  binary scan $head @8IIIIu version mode layout page
  binary scan $head @32IuIuIuIuIu magic format page_of_wal checkpoints salt
  set frames 0
  if {$magic!=0} {
    switch $layout {
      1 {set slot $page ; set at [expr {$page-24}]}
      2 {set slot [expr {($page+24+511)/512*512}] ; set at 0}
    }
    set frames [frames_written $in [expr {4096+$at}] $slot $salt $checkpoints]
  }
  close $in
  if {$magic==0} {
    if {[is_guarded [string range $name 0 end-4]]} {return 0}
    return ""
  }
  expr {32 + $frames*(24+$page)}
}

proc file {what args} {
  switch -- $what {
    exists - size {
      set size [wal_size [lindex $args 0]]
      if {$size ne ""} {return [expr {$what eq "exists" ? 1 : $size}]}
    }
    copy {
      set log [log_beside [lindex $args end-1]]
      set to [lindex $args end]
      if {$log ne "" && [string match *-wal $to]} {
        return [file_of_tcl copy -force $log [string range $to 0 end-4]-onewrite]
      }
    }
    delete {
      foreach name $args {
        if {[string match *-wal $name]} {
          file_of_tcl delete -force [string range $name 0 end-4]-onewrite
        }
      }
    }
  }
  uplevel 1 [list file_of_tcl $what {*}$args]
}

# The variations "wal": tester.tcl runs this on every connection that a test opens.
if {[info exists env(SQLITE_TESTS_PRESQL)]} {set G(perm:presql) $env(SQLITE_TESTS_PRESQL)}

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
