# frozen_string_literal: true

# check.

require_relative "support"

class Check < Place
  def test_another_vfs
    text = "#{path}: the connection does not use onewrite: SQLite opened it with another VFS; use OneWrite.open, or " \
           "call OneWrite.load(make_default: true) before you open it"
    assert_fails(text) { OneWrite.check(stock) }
    assert_fails(/\Aa database in memory: the connection does not use/) { OneWrite.check(stock(":memory:")) }
  end

  def test_another_mode
    db = open(mode: "waldio")
    assert_fails("#{path}: the database is in waldio mode, not in onewrite") { OneWrite.check(db, mode: "onewrite") }
    assert_fails(/unknown mode "wal"/, ArgumentError) { OneWrite.check(db, mode: "wal") }
  end

  def test_a_mode_of_sqlite
    db = open
    assert_equal "delete", db.get_first_value("PRAGMA journal_mode=delete")
    assert_fails("#{path}: the database is in delete mode, not in one of onewrite") { OneWrite.check(db) }
  end

  def test_a_level_that_was_set_afterwards
    db = open
    db.execute("PRAGMA synchronous=NORMAL")
    assert_fails("#{path}: synchronous is NORMAL, not FULL: run PRAGMA synchronous=FULL") { OneWrite.check(db) }
    OneWrite.check(db, synchronous: "NORMAL")
    assert_fails(/synchronous is FULL, not EXTRA/) { OneWrite.check(open, synchronous: :extra) }
  end

  # As Rails does at each connect.
  def test_a_level_to_which_the_environment_raises_another
    code = <<~RUBY
      OneWrite.load(make_default: true)
      db = SQLite3::Database.new(ARGV[0])
      ["journal_mode=WAL", "synchronous=NORMAL"].each { |pragma| db.execute("PRAGMA \#{pragma}") }
      db.execute("CREATE TABLE t(x)")
      p OneWrite.check(db).values_at("mode", "synchronous")
    RUBY
    assert_equal '["onewrite", "full"]', printed(code, path, ONEWRITE_SYNCHRONOUS: "full")
  end

  # How many calls made five commits durable. The first one is not counted: its level is new.
  def durable_calls(db)
    counts = Array.new(6) do
      db.execute("INSERT INTO t VALUES(1)")
      OneWrite.check(db, synchronous: "OFF").values_at("flushes", "write_through").sum
    end
    counts.last - counts.first
  end

  def test_a_program_that_says_normal_commits_at_full_above_a_floor
    uri, plain = open("file:#{path}?onewrite_synchronous=full"), open("#{path} plain")
    [uri, plain].each do |db|
      commit_a_row(db)
      db.execute("PRAGMA synchronous=NORMAL")
    end
    assert_equal 0, durable_calls(plain)
    plain.execute("PRAGMA onewrite_synchronous=full")
    [uri, plain].each do |db|
      assert_equal "full", OneWrite.check(db)["synchronous"]
      assert_operator durable_calls(db), :>=, 5
    end
  end

  def test_settings_that_lose_commits
    db = open
    db.execute("PRAGMA onewrite_sync=normal")
    assert_fails(/\A#{path}: onewrite_sync=normal lets a power cut lose commits/) { OneWrite.check(db) }
    db = open("#{path} groups", mode: "waldio")
    db.execute("PRAGMA onewrite_group_synch='4,2'")
    assert_fails(/onewrite_group_synch=4,2 lets a power cut/) { OneWrite.check(db) }
  end

  def test_a_uri_that_became_the_name_of_a_file
    code = <<~RUBY
      OneWrite.load(make_default: true) unless ARGV[0].empty?
      db = SQLite3::Database.new("app.db?vfs=onewrite&journal_mode=onewrite")
      db.execute("PRAGMA journal_mode=onewrite")
      begin OneWrite.check(db); rescue OneWrite::Error => e then puts e.message end
    RUBY
    name = "app.db?vfs=onewrite&journal_mode=onewrite"
    ["", "default"].each do |load|
      assert_equal "#{directory}/#{name}: the database is a file that is named #{name}, because SQLite took the URI for " \
                   "a name: open it by its path alone, or as file:...", printed(code, load)
    end
  end

  def test_a_program_that_asks_for_wal_keeps_the_mode
    OneWrite::MODES.each do |mode|
      # The second connection does not name it: the database remembers.
      [mode, nil].each do |named|
        OneWrite.open("#{path} #{mode}", mode: named) do |db|
          assert_equal "wal", db.get_first_value("PRAGMA journal_mode=WAL")
          commit_a_row(db)
          OneWrite.check(db, mode: mode)
        end
      end
    end
  end

  def test_the_reason_of_a_mode_that_is_kept_out
    OneWrite.open(path) { |db| commit_a_row(db) }
    idle = stock
    idle.execute("SELECT count(*) FROM t")
    db = stock(OneWrite.uri(path, mode: nil), flags: SQLite3::Constants::Open::READWRITE | 0x40)
    db.execute("SELECT count(*) FROM t")
    assert_fails(/is not in onewrite mode: .*stock SQLite/) { OneWrite.check(db) }
    assert_fails(/cannot change into onewrite mode.*stock SQLite/) { open(timeout: 0) }
  end
end
