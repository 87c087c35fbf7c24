# scripts/sqlite-tests runs this before a test file, over our VFS. If a test works on <db>-wal, it
# means the log, which is <db>-onewrite in the guarded modes. The adapter shows the test the log's
# frames as SQLite's own log would hold them, and accepts the test's writes:
#
# - size, existence and permissions: of the written frames, without the blocks prepared behind them;
# - hexio_read, hexio_write, and open ... close: the bytes, at the places where SQLite would have
#   them;
# - copies and deletions: a database that is copied without its log, or whose log is deleted, must
#   be usable as it stands. So the adapter removes its guard, as "onewrite detach --discard" would.
#   If the log follows, the adapter restores the guard.
#
# A test that starts another testfixture gets the same there. docs/formats.md has the formats, and
# docs/sqlite-test-suite.md has the remaining differences.
#
#     testfixture adapter.tcl TEST.test

rename file file_of_tcl
rename open open_of_tcl
rename close close_of_tcl
rename hexio_read hexio_read_of_file
rename hexio_write hexio_write_of_file
set adapter [file_of_tcl normalize [info script]]
source [file_of_tcl dirname $adapter]/records.tcl

proc ends_with {suffix name} {
  string equal $suffix [string range $name end-[expr {[string length $suffix]-1}] end]
}

proc database_of {name} {
  foreach suffix {-wal -onewrite} {
    if {[ends_with $suffix $name]} {return [string range $name 0 end-[string length $suffix]]}
  }
  return $name
}

# ---- The guard ----

# The id of the log that a database is guarded for, in hexadecimal; "" if it is not guarded. Another
# process reads it, because closing the database here would drop SQLite's locks on it.
proc guard_of {database} {
  if {![file_of_tcl isfile $database]} {return ""}
  set bytes [exec od -An -v -tx1 -N80 $database]
  if {[lindex $bytes 19] ne "a1"} {return ""}
  join [lrange $bytes 72 79] ""
}

proc patch {database at hex} {
  set bytes ""
  foreach {a b} [split $hex ""] {append bytes \\x$a$b}
  exec printf $bytes | dd of=$database bs=1 seek=$at conv=notrunc status=none
}

proc put_guard {database id} {
  patch $database 19 a1
  patch $database 72 $id
}

proc take_guard {database} {
  patch $database 19 02
  patch $database 72 0000000000000000
}

# ---- The log ----

# The header fields of a log; {} if it is not a log in use.
proc look_at_log {log} {
  set in [open_of_tcl $log rb]
  fconfigure $in -buffersize 128
  set fields [binary scan [read $in 128] a8IuIuIuIuH16IuIuIuIuIu \
      name version mode layout page id magic format page_of_wal checkpoints salt]
  close_of_tcl $in
  set known [expr {$fields==11 && $name eq "onewrite" && $page>0 && $layout in {1 2 5 6 7}}]
  if {!$known} {return {}}
  dict create layout $layout page $page id $id empty [expr {$magic==0}] salt $salt checkpoints $checkpoints
}

# The number of frames in a log that look_at_log has read.
proc frames_in {log found} {
  dict with found {}
  set in [open_of_tcl $log rb]
  if {[has_records $layout]} {
    seek $in 32
    set frames [dict get [walk $in $layout $page [read $in 32]] ever]
  } else {
    set frames [count_frames $in $layout $page $salt $checkpoints]
  }
  close_of_tcl $in
  return $frames
}

# The offset of the header of frame number I+1.
proc header_at {layout page i} {
  switch $layout {
    0 {expr {32 + $i*(24+$page)}}
    1 {expr {4096 + ($i/128)*(4096+128*$page) + 4096 + ($i%128)*$page + $page - 24}}
    2 {expr {4096 + $i*(($page+24+511)/512*512)}}
    7 {expr {4096 + ($i/128)*(4096+128*$page) + 32*($i%128)}}
  }
}

# The offset of its page, and the page's bytes there. Layout embedded keeps the header in the last
# 24; gathered keeps all headers of a group before its pages.
proc page_at {layout page i} {
  set at [header_at $layout $page $i]
  if {$layout==1} {return [list [expr {$at-($page-24)}] [expr {$page-24}]]}
  if {$layout==7} {return [list [expr {4096 + ($i/128)*(4096+128*$page) + 4096 + ($i%128)*$page}] $page]}
  list [expr {$at+24}] $page
}

# The number of frames in an open file that belong to the log's current life. They come first, so a
# binary search finds the last one. Every restart of the log adds one to the first salt; zeros are
# not a frame.
proc count_frames {in layout page salt checkpoints} {
  seek $in 0 end
  set frames 0
  set end [expr {[tell $in]/$page+1}]
  while {$frames<$end} {
    set i [expr {($frames+$end)/2}]
    seek $in [header_at $layout $page $i]
    set fields [binary scan [read $in 24] IuIuIu number commit its_salt]
    if {$fields==3 && $number!=0 && (($salt-$its_salt)&0xffffffff)<=$checkpoints} {
      set frames [expr {$i+1}]
    } else {
      set end $i
    }
  }
  return $frames
}

# In journal mode direct: the size of a -wal file without the prepared blocks; "" if the file does
# not exist or is not a log.
proc direct_size {name} {
  if {![ends_with -wal $name] || ![file_of_tcl isfile $name]} {return ""}
  set in [open_of_tcl $name rb]
  fconfigure $in -buffersize 128
  set fields [binary scan [read $in 32] IuIuIuIuIu magic format page checkpoints salt]
  set size ""
  if {$fields==5 && $magic==0} {
    set size 0
  } elseif {$fields==5} {
    set size [expr {32 + (24+$page)*[count_frames $in 0 $page $salt $checkpoints]}]
  }
  close_of_tcl $in
  return $size
}

# The log that a -wal file's name means, if SQLite's own log would exist; else "".
proc log_for {name} {
  if {![ends_with -wal $name] || [file_of_tcl exists $name]} {return ""}
  set database [database_of $name]
  set log $database-onewrite
  if {![file_of_tcl isfile $log]} {return ""}
  set found [look_at_log $log]
  if {$found eq ""} {return ""}
  if {[dict get $found empty] && [guard_of $database] eq ""} {return ""}
  return $log
}

# The size that SQLite's own log would have; "" if the adapter does not decide this.
proc wal_size {name} {
  if {[info exists ::env(SQLITE_TESTS_DIRECT)]} {return [direct_size $name]}
  set log [log_for $name]
  if {$log eq ""} {return ""}
  set found [look_at_log $log]
  if {[dict get $found empty]} {return 0}
  expr {32 + [frames_in $log $found]*(24+[dict get $found page])}
}

# The bytes that SQLite's own log would have.
proc wal_bytes {log} {
  set found [look_at_log $log]
  if {[dict get $found empty]} {return ""}
  set layout [dict get $found layout]
  set page [dict get $found page]
  set in [open_of_tcl $log rb]
  seek $in 32
  set bytes [read $in 32]
  if {[has_records $layout]} {
    set walk [walk $in $layout $page $bytes]
    close_of_tcl $in
    for {set i 0} {$i<[llength [dict get $walk frames]]} {incr i} {append bytes [frame_of $walk $page $i]}
    return $bytes[string repeat \0 [expr {([dict get $walk ever]-$i)*(24+$page)}]]
  }
  set frames [frames_in $log $found]
  for {set i 0} {$i<$frames} {incr i} {
    seek $in [header_at $layout $page $i]
    append bytes [read $in 24]
    lassign [page_at $layout $page $i] at count
    seek $in $at
    append bytes [read $in $count] [string repeat \0 [expr {$page-$count}]]
  }
  close_of_tcl $in
  return $bytes
}

# Changes a log's content from OLD to NEW. A frame that is shortened or removed becomes zeros from
# there on.
proc put_wal_bytes {log old new} {
  set found [look_at_log $log]
  set layout [dict get $found layout]
  set page [dict get $found page]
  set size [string length $old]
  if {[string length $new]>$size} {set size [string length $new]}
  append old [string repeat \0 [expr {$size-[string length $old]}]]
  append new [string repeat \0 [expr {$size-[string length $new]}]]
  set out [open_of_tcl $log r+b]
  set head [read $out 124]
  if {[has_records $layout]} {set walk [walk $out $layout $page [string range $head 32 63]]}
  set head [string replace $head 32 63 [string range $new 0 31]]
  seek $out 0
  puts -nonewline $out $head[binary format I [crc32c $head]]
  for {set i 0} {32+$i*(24+$page)<$size} {incr i} {
    set from [expr {32+$i*(24+$page)}]
    set to [expr {$from+23+$page}]
    set frame [string range $new $from $to]
    if {$frame eq [string range $old $from $to]} {continue}
    if {[has_records $layout]} {
      put_frames $out $layout $page $walk $new $i
      break
    }
    append frame [string repeat \0 [expr {24+$page-[string length $frame]}]]
    lassign [page_at $layout $page $i] at count
    if {[string trim [string range $frame [expr {24+$count}] end] \0] ne ""} {
      error "the adapter cannot write into the reserved bytes of a page"
    }
    seek $out [header_at $layout $page $i]
    puts -nonewline $out [string range $frame 0 23]
    seek $out $at
    puts -nonewline $out [string range $frame 24 [expr {23+$count}]]
  }
  close_of_tcl $out
}

# ---- Commands that the tests call ----

# Called after a copy to, or a deletion from, the place of a database or its log.
proc settle_guard {database what} {
  set guard [guard_of $database]
  set id ""
  if {[file_of_tcl isfile $database-onewrite]} {
    set found [look_at_log $database-onewrite]
    if {$found ne ""} {set id [dict get $found id]}
  }
  if {$guard ne ""} {
    if {$guard ne $id} {
      take_guard $database
      set ::without_log($database) $guard
    }
  } elseif {$what eq "log" && $id ne "" && [file_of_tcl isfile $database]} {
    # The test has decided that this log belongs to that database.
    set is_ours [expr {[info exists ::without_log($database)] && $::without_log($database) eq $id}]
    if {$is_ours || ![dict get $found empty]} {put_guard $database $id}
  }
}

proc copy_to {options from to} {
  set is_log [ends_with -onewrite $from]
  if {[ends_with -wal $from] && [ends_with -wal $to] && [log_for $from] ne ""} {
    set is_log 1
    set from [log_for $from]
    set to [database_of $to]-onewrite
  }
  file_of_tcl copy {*}$options $from $to
  if {[file_of_tcl isdirectory $to]} {return}
  set database [database_of $to]
  if {!$is_log} {unset -nocomplain ::without_log($database)}
  if {$is_log || $database eq $to} {settle_guard $database [expr {$is_log ? "log" : "database"}]}
  return ""
}

proc file {what args} {
  set name [lindex $args 0]
  if {[string match "$what*" attributes] && [string length $what]>2} {set what attributes}
  switch -- $what {
    exists {
      if {[log_for $name] ne ""} {return 1}
    }
    size {
      set size [wal_size $name]
      if {$size ne ""} {return $size}
    }
    attributes {
      set log [log_for $name]
      if {$log ne ""} {set args [lreplace $args 0 0 $log]}
      if {[lindex $args 2] eq "0000"} {set ::denied($name) 1}
    }
    writable {
      # Transactional files have no permissions, and a test ends if it may write where it should not.
      if {[info exists ::denied($name)]} {return 0}
    }
    copy {
      if {![info exists ::env(SQLITE_TESTS_DIRECT)]} {
        return [copy_to [lrange $args 0 end-2] [lindex $args end-1] [lindex $args end]]
      }
    }
    delete {
      foreach name $args {
        unset -nocomplain ::denied($name)
        if {![ends_with -wal $name]} {continue}
        set database [database_of $name]
        if {![file_of_tcl exists $database-onewrite]} {continue}
        file_of_tcl delete -force $database-onewrite
        settle_guard $database nothing
      }
    }
  }
  uplevel 1 [list file_of_tcl $what {*}$args]
}

proc hexio_read {name offset count} {
  set log [log_for $name]
  if {$log ne ""} {
    set bytes [string range [wal_bytes $log] $offset [expr {$offset+$count-1}]]
    return [string toupper [binary encode hex $bytes]]
  }
  set hex [hexio_read_of_file $name $offset $count]
  if {$offset>19 || $offset+$count<=19} {return $hex}
  set at [expr {2*(19-$offset)}]
  if {[string range $hex $at $at+1] eq "A1"} {set hex [string replace $hex $at $at+1 02]}
  return $hex
}

proc hexio_write {name offset hex} {
  set log [log_for $name]
  if {$log eq ""} {return [hexio_write_of_file $name $offset $hex]}
  set old [wal_bytes $log]
  set bytes [binary decode hex $hex]
  set new [string replace $old $offset [expr {$offset+[string length $bytes]-1}] $bytes]
  put_wal_bytes $log $old $new
  string length $bytes
}

# A test that opens the log gets a file like SQLite's. When the test closes it, its writes go into
# the log.
proc open {name args} {
  if {[string match "|* tf_main.tcl" $name]} {
    set name [string map [list " tf_main.tcl" " $::adapter tf_main.tcl"] $name]
  }
  set log [log_for $name]
  if {$log eq ""} {return [uplevel 1 [list open_of_tcl $name {*}$args]]}
  set old [wal_bytes $log]
  set out [file_of_tcl tempfile view]
  fconfigure $out -translation binary
  puts -nonewline $out $old
  close_of_tcl $out
  set channel [open_of_tcl $view {*}$args]
  set ::views($channel) [list $log $view $old]
  return $channel
}

proc close {channel args} {
  set result [uplevel 1 [list close_of_tcl $channel {*}$args]]
  if {[info exists ::views($channel)]} {
    lassign $::views($channel) log view old
    unset ::views($channel)
    set in [open_of_tcl $view rb]
    set new [read $in]
    close_of_tcl $in
    file_of_tcl delete $view
    if {$new ne $old} {put_wal_bytes $log $old $new}
  }
  return $result
}

# Some tests run only over the VFS called unix, which is below ours.
rename test_syscall test_syscall_of_vfs
proc test_syscall {what args} {
  if {$what eq "defaultvfs"} {return unix}
  uplevel 1 [list test_syscall_of_vfs $what {*}$args]
}

# The variations "wal": tester.tcl runs this on every connection that a test opens.
if {[info exists env(SQLITE_TESTS_PRESQL)]} {set G(perm:presql) $env(SQLITE_TESTS_PRESQL)}

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
