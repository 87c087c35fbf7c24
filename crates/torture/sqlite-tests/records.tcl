# Logs without fixed positions, for adapter.tcl: layouts compressed (5) and packed (6). A walk over
# the log finds their frames and unpacks them; docs/formats.md has the bytes.
#
# A walk is a dictionary. "frames" is a list of {offset bytes-of-the-record} by frame number.
# "commits" has {last-frame next-place sequence crc} for every transaction that ends. In packed the next
# place is a block, and a fifth number is where the bytes end. A frame that the adapter writes is stored
# uncompressed, behind the last transaction that stays unchanged. A frame that cannot belong to the log
# (page number 0, in packed also other salts) ends the log there, as it ends SQLite's recovery.

set LAYOUT_COMPRESSED 5
set LAYOUT_PACKED 6

# CRC-32C of bytes, with a table.
for {set i 0} {$i<256} {incr i} {
  set crc $i
  for {set bit 0} {$bit<8} {incr bit} {
    set crc [expr {$crc & 1 ? ($crc>>1) ^ 0x82f63b78 : $crc>>1}]
  }
  lappend crc32c_table $crc
}
unset i bit crc

proc crc32c {bytes} {
  global crc32c_table
  binary scan $bytes cu* values
  set crc 0xffffffff
  foreach value $values {
    set crc [expr {($crc>>8) ^ [lindex $crc32c_table [expr {($crc ^ $value) & 255}]]}]
  }
  expr {$crc ^ 0xffffffff}
}

proc has_records {layout} {expr {$layout in "$::LAYOUT_COMPRESSED $::LAYOUT_PACKED"}}

# ---- Reading ----

# The fields of a record; "" if there is none. SALTS is the generation, 8 bytes.
proc record_at {layout page salts bytes at} {
  if {$layout==$::LAYOUT_PACKED} {
    set fields [binary scan $bytes @${at}IuIua8Iu number commit checksums word]
    set head 20
    set its_salts [expr {[info exists word] && $word & (1<<27) ? "\0\0\0\0\0\0\0\0" : $salts}]
    if {$fields!=4} {return ""}
  } else {
    set fields [binary scan $bytes @${at}IuIua8a8Iu number commit its_salts checksums word]
    set head 28
    if {$fields!=5} {return ""}
    if {$its_salts ne $salts && !($word & (1<<27))} {return ""}
  }
  if {$number==0} {return ""}
  set supersedes 0
  set base 0
  foreach {is name} [list [expr {$word & (1<<26)}] supersedes [expr {($word>>28) in {2 4 5}}] base] {
    if {!$is} {continue}
    if {[binary scan $bytes @[expr {$at+$head}]Iu $name]!=1} {return ""}
    incr head 4
  }
  set kind [expr {$word>>28}]
  set data [expr {$word & 0x3ffffff}]
  if {$kind>5 || $data>$page || ($kind==0)!=($data==$page)} {return ""}
  dict create number $number commit $commit salts $its_salts checksums $checksums kind $kind \
      supersedes $supersedes base $base head $head data $data
}

# The frames in an open log. For layout packed, "ever" is also the number of frames before the log
# started again, as far as their batches still exist. SQLite's own log keeps its size then.
proc walk {in layout page header} {
  set salts [string range $header 16 23]
  seek $in 0 end
  set size [tell $in]
  seek $in 0
  set bytes [read $in $size]
  set frames {}
  set commits [list [list 0 4096 0 [crc32c $salts]]]
  if {$layout==$::LAYOUT_PACKED} {
    walk_batches $bytes $page $salts frames commits
    set ever [frames_of_before $bytes $header [lindex $commits end 1]]
  } else {
    walk_records $bytes $page $salts frames commits
    set ever 0
  }
  if {$ever<[llength $frames]} {set ever [llength $frames]}
  dict create frames $frames commits $commits salts $salts bytes $bytes ever $ever
}

proc walk_batches {bytes page salts frames_name commits_name} {
  upvar $frames_name frames $commits_name commits
  lassign [lindex $commits 0] - tail sequence previous
  while {[set batch [next_batch $bytes $salts $tail $sequence $previous]] ne ""} {
    lassign $batch at crc number first count length
    set ends [expr {$count>>31}]
    set count [expr {$count & 0x7fffffff}]
    if {$first>[llength $frames]+1 || $first<=[lindex $commits end 0]} {break}
    set from [expr {$at+36}]
    for {set i $first} {$i<$first+$count} {incr i} {
      set record [record_at $::LAYOUT_PACKED $page $salts $bytes $from]
      if {$record eq ""} {return}
      set frames [lreplace $frames [expr {$i-1}] [expr {$i-1}] [list $from $record]]
      incr from [expr {[dict get $record head]+[dict get $record data]}]
    }
    set tail [expr {($at+36+$length+15)/16*16}]
    set sequence $number
    set previous $crc
    if {$ends} {
      set frames [lrange $frames 0 [expr {$first+$count-2}]]
      lappend commits [list [llength $frames] [next_block $tail] $sequence $previous $tail]
    }
  }
}

proc next_block {at} {expr {($at+4095)/4096*4096}}

# The batch after TAIL: {offset crc sequence first-frame count length}; "" if there is none. It begins a block, or
# stands right behind TAIL. If both do, the second is meant only if it reaches into the block of the first.
proc next_batch {bytes salts tail sequence previous} {
  set block [next_block $tail]
  set far [batch_at $bytes $salts $block owbt $sequence $previous]
  if {$tail==$block} {return $far}
  set near [batch_at $bytes $salts $tail owbs $sequence $previous]
  if {$near ne "" && ($far eq "" || $tail+36+[lindex $near 5]>$block)} {return $near}
  return $far
}

proc batch_at {bytes salts at kind sequence previous} {
  if {[binary scan $bytes @${at}a4Iua8IuIuIuIuIu magic crc its_salts number before first count length]!=8} {return ""}
  if {$magic ne $kind || $its_salts ne $salts || $number!=$sequence+1 || $before!=$previous} {return ""}
  list $at $crc $number $first $count $length
}

# Between two transactions the log may continue at the next block.
proc walk_records {bytes page salts frames_name commits_name} {
  upvar $frames_name frames $commits_name commits
  set at 4096
  while {1} {
    set record [record_at $::LAYOUT_COMPRESSED $page $salts $bytes $at]
    if {$record eq "" && $at%4096 && [llength $frames]==[lindex $commits end 0]} {
      set at [expr {($at+4095)/4096*4096}]
      set record [record_at $::LAYOUT_COMPRESSED $page $salts $bytes $at]
    }
    if {$record eq ""} {break}
    set frame [dict get $record supersedes]
    if {$frame==0} {set frame [expr {[llength $frames]+1}]}
    set end [expr {$at+[dict get $record head]+[dict get $record data]}]
    if {$frame>[llength $frames]+1 || $frame<=[lindex $commits end 0] || $end>[string length $bytes]} {break}
    set frames [lreplace $frames [expr {$frame-1}] [expr {$frame-1}] [list $at $record]]
    set at $end
    if {[dict get $record commit]!=0 && [dict get $record salts] eq $salts} {
      set frames [lrange $frames 0 [expr {$frame-1}]]
      lappend commits [list $frame $at 0 0]
    }
  }
}

# Every restart of the log adds one to the first salt.
proc frames_of_before {bytes header from} {
  binary scan $header @12IuIu checkpoints salt
  set most 0
  for {set at $from} {[set at [string first owb $bytes $at]]>=0} {incr at} {
    if {$at%16 || [binary scan $bytes @${at}a4IuIux12IuIu magic crc its_salt first count]!=5} {continue}
    if {$magic ni {owbt owbs} || (($salt-$its_salt)&0xffffffff)>$checkpoints} {continue}
    set last [expr {$first-1+($count & 0x7fffffff)}]
    if {$last>$most} {set most $last}
  }
  return $most
}

# The page of frame number I+1.
proc page_of {walk page i} {
  lassign [lindex [dict get $walk frames] $i] at record
  set from [expr {$at+[dict get $record head]}]
  set data [string range [dict get $walk bytes] $from [expr {$from+[dict get $record data]-1}]]
  set dictionary ""
  if {[dict get $record base]} {set dictionary [page_of $walk $page [expr {[dict get $record base]-1}]]}
  switch [dict get $record kind] {
    0 {return $data}
    1 - 2 {return [lz4_unpack $data $dictionary]}
    3 - 4 {return [zstd_unpack $data $dictionary]}
    5 {return [ranges_apply $data $dictionary]}
  }
}

# Unpacks a zstd frame with the command zstd.
proc zstd_unpack {data dictionary} {
  set out [file_of_tcl tempfile name]
  fconfigure $out -translation binary
  puts -nonewline $out $dictionary
  close_of_tcl $out
  set options [expr {$dictionary eq "" ? {} : [list -D $name]}]
  set pipe [open_of_tcl "|zstd -dcq $options > $name.page" wb]
  puts -nonewline $pipe $data
  close_of_tcl $pipe
  set in [open_of_tcl $name.page rb]
  set page [read $in]
  close_of_tcl $in
  file_of_tcl delete $name $name.page
  return $page
}

# Unpacks an LZ4 block. DICTIONARY precedes its beginning.
proc lz4_unpack {data dictionary} {
  binary scan $data cu* values
  set out $dictionary
  set end [llength $values]
  set at 0
  while {$at<$end} {
    set token [lindex $values $at]
    incr at
    set literals [expr {$token>>4}]
    if {$literals==15} {
      while {1} {
        set more [lindex $values $at]
        incr at
        incr literals $more
        if {$more!=255} {break}
      }
    }
    append out [string range $data $at [expr {$at+$literals-1}]]
    incr at $literals
    if {$at>=$end} {break}
    set distance [expr {[lindex $values $at] + 256*[lindex $values $at+1]}]
    incr at 2
    set length [expr {($token & 15) + 4}]
    if {$length==19} {
      while {1} {
        set more [lindex $values $at]
        incr at
        incr length $more
        if {$more!=255} {break}
      }
    }
    set from [expr {[string length $out]-$distance}]
    set pattern [string range $out $from [expr {$from+$length-1}]]
    set times [expr {($length+$distance-1)/$distance}]
    if {$times>1} {set pattern [string range [string repeat $pattern $times] 0 [expr {$length-1}]]}
    append out $pattern
  }
  string range $out [string length $dictionary] end
}

# Writes byte ranges over the page BASE.
proc ranges_apply {data base} {
  binary scan $data cu* values
  set at 0
  for {set from 0} {$from<[llength $values]} {incr from $count} {
    incr at [take_leb128 $values from]
    set count [take_leb128 $values from]
    set bytes [string range $data $from [expr {$from+$count-1}]]
    set base [string replace $base $at [expr {$at+$count-1}] $bytes]
    incr at $count
  }
  return $base
}

# Takes a number in LEB128 off the list VALUES at FROM_NAME.
proc take_leb128 {values from_name} {
  upvar $from_name from
  for {set number 0; set shift 0} 1 {incr shift 7} {
    set byte [lindex $values $from]
    incr from
    incr number [expr {($byte & 127)<<$shift}]
    if {$byte<128} {return $number}
  }
}

# Frame number I+1 as SQLite's own log would hold it.
proc frame_of {walk page i} {
  set record [lindex [dict get $walk frames] $i 1]
  set head [binary format II [dict get $record number] [dict get $record commit]]
  append head [dict get $record salts] [dict get $record checksums]
  return $head[page_of $walk $page $i]
}

# ---- Writing ----

# Replaces the frames behind the last transaction before number CHANGED+1. NEW is the whole log in
# SQLite's form.
proc put_frames {out layout page walk new changed} {
  set salts [string range $new 16 23]
  set kept [list 0 4096 0 [crc32c $salts]]
  if {$salts eq [dict get $walk salts]} {
    foreach commit [dict get $walk commits] {
      if {[lindex $commit 0]<=$changed} {set kept $commit}
    }
  }
  lassign $kept i at sequence previous tail
  # In packed the next batch begins a block. What stands before it, behind the last one, must not follow.
  if {$tail ne "" && $tail<$at} {
    seek $out $tail
    puts -nonewline $out [string repeat \0 [expr {$at-$tail}]]
  }
  set frames {}
  while {1} {
    set from [expr {32+$i*(24+$page)}]
    set frame [string range $new $from [expr {$from+23+$page}]]
    set fields [binary scan $frame IuIua8 number commit its_salts]
    if {$fields!=3 || $number==0 || ($layout==$::LAYOUT_PACKED && $its_salts ne $salts)} {break}
    append frame [string repeat \0 [expr {24+$page-[string length $frame]}]]
    lappend frames $frame
    incr i
    if {$commit!=0} {
      put_transaction
      set frames {}
    }
  }
  put_transaction
  # Old content here, or at the next block, must not follow the new frames.
  seek $out $at
  puts -nonewline $out [string repeat \0 [expr {8192-$at%4096}]]
}

# Writes FRAMES of one transaction at AT.
proc put_transaction {} {
  upvar out out layout layout page page salts salts frames frames i i at at sequence sequence previous previous
  if {[llength $frames]==0} {return}
  set records ""
  foreach frame $frames {
    if {$layout==$::LAYOUT_PACKED} {
      append records [string range $frame 0 7] [string range $frame 16 23]
    } else {
      append records [string range $frame 0 23]
    }
    append records [binary format I $page] [string range $frame 24 end]
  }
  if {$layout==$::LAYOUT_PACKED} {
    binary scan [lindex $frames end] @4Iu commit
    set count [expr {[llength $frames] | ($commit!=0)<<31}]
    set first [expr {$i-[llength $frames]+1}]
    incr sequence
    set covered $salts[binary format IIIII $sequence $previous $first $count [string length $records]]$records
    set previous [crc32c $covered]
    set records owbt[binary format I $previous]$covered
    append records [string repeat \0 [expr {-[string length $records] & 4095}]]
  }
  seek $out $at
  puts -nonewline $out $records
  incr at [string length $records]
}
