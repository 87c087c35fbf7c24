# frozen_string_literal: true

# Kills, and stock tools.

require_relative "support"

class Durable < Place
  RIGHT_ROWS = "SELECT count(*) FROM (SELECT x, row_number() OVER (ORDER BY rowid) AS n FROM t) WHERE x = n - 1"

  def test_a_kill_loses_no_commit_and_stock_sqlite_is_refused
    code = <<~RUBY
      db = OneWrite.open(ARGV[0])
      db.execute("CREATE TABLE t(x)")
      $stdout.sync = true
      (0..).each do |row|
        db.execute("INSERT INTO t VALUES(?)", [row])
        puts row
      end
    RUBY
    child = start(code, path)
    acknowledged = 0
    while acknowledged < 50
      assert_equal "#{acknowledged}\n", child.line
      acknowledged += 1
    end
    child.signal("KILL")
    # The last line may be cut short.
    acknowledged += child.end("KILL").count("\n")
    error = assert_raises(SQLite3::NotADatabaseException) { stock.execute("SELECT count(*) FROM t") }
    assert_match(/file is not a database/, error.message)
    assert_read_back(acknowledged)
  end

  def assert_read_back(acknowledged)
    rows = OneWrite.open(path) do |db|
      OneWrite.check(db)
      assert_equal "ok", db.get_first_value("PRAGMA integrity_check")
      count = db.get_first_value("SELECT count(*) FROM t")
      assert_equal count, db.get_first_value(RIGHT_ROWS)
      count
    end
    assert_operator rows, :>=, acknowledged
    # Stock SQLite, after the last close.
    assert_equal rows, stock.get_first_value("SELECT count(*) FROM t")
  end
end
