# frozen_string_literal: true

# Commits with the installed gem, and is killed; or reads back.
#
#   ruby commit.rb DATABASE write    ends by SIGKILL
#   ruby commit.rb DATABASE read     ends with 0 if each commit is there
#
# scripts/release installs the gem and runs it.

require "onewrite"

ROWS = 50

def expect(expected, found)
  raise "#{found.inspect}, not #{expected.inspect}" unless found == expected
end

file, what = ARGV
OneWrite.open(file) do |db|
  expect("onewrite", OneWrite.check(db)["mode"])
  if what == "write"
    db.execute("CREATE TABLE t(x)")
    ROWS.times { db.execute("INSERT INTO t VALUES(?)", ["a row"]) }
    Process.kill("KILL", Process.pid)
  end
  expect(ROWS, db.get_first_value("SELECT count(*) FROM t WHERE x = 'a row'"))
  expect("ok", db.get_first_value("PRAGMA integrity_check"))
end
