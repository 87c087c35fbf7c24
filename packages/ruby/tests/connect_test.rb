# frozen_string_literal: true

# open and uri.

require_relative "support"
require "pathname"

class Open < Place
  def test_one_line_opens_in_the_mode_at_full
    db = open
    commit_a_row(db)
    status = OneWrite.check(db)
    assert_equal ["onewrite", true, OneWrite::VERSION], status.values_at("mode", "guarded", "version")
    assert_equal 2, db.get_first_value("PRAGMA synchronous")
    assert_equal 5000, db.get_first_value("PRAGMA busy_timeout")
    assert_operator status["writes"], :>, 0
    assert_instance_of SQLite3::Database, db
  end

  def test_a_block_gets_the_database_and_its_value_is_returned
    kept = nil
    value = OneWrite.open(path) do |db|
      kept = db
      OneWrite.check(db)["mode"]
    end
    assert_equal ["onewrite", true], [value, kept.closed?]
    assert_raises(IOError) { OneWrite.open(path) { |db| (kept = db) && raise(IOError) } }
    assert kept.closed?
  end

  def test_a_database_keeps_the_mode_that_it_remembers
    OneWrite::MODES.each do |mode|
      name = "#{path} #{mode}"
      OneWrite.open(name, mode: mode) { |db| OneWrite.check(db, mode: mode) }
      assert_equal mode, OneWrite.open(name) { |db| OneWrite.check(db)["mode"] }
      assert_equal "onewrite", OneWrite.open(name, mode: "onewrite") { |db| OneWrite.check(db)["mode"] }
    end
  end

  def test_every_mode_and_level
    OneWrite::MODES.product(["OFF", :normal, "FULL", "EXTRA"]) do |mode, level|
      db = open("#{path} #{mode} #{level}", mode: mode.upcase, synchronous: level)
      commit_a_row(db)
      assert_equal mode, OneWrite.check(db, mode: mode, synchronous: level)["mode"]
    end
  end

  def test_a_stock_database_is_taken_over_and_is_stock_again_after_the_last_close
    db = stock
    db.execute("CREATE TABLE t(x)")
    db.close
    OneWrite.open(path) { |ours| commit_a_row(ours) }
    db = stock
    assert_equal 1, db.get_first_value("SELECT count(*) FROM t")
    db.close
    assert_equal 1, open.get_first_value("SELECT count(*) FROM t")
  end

  def test_names_of_all_kinds
    Dir.chdir(directory) do
      Dir.mkdir("a b")
      ["a b/c?d#e%20f&g.db", "über.db", "+x y.db", "./file:x.db"].each do |name|
        [name, "/#{directory}/#{name}", Pathname.new(name), name.b].each do |form|
          OneWrite.open(form) { |db| commit_a_row(db) }
          assert File.exist?(name), form
        end
      end
      OneWrite.open("file:q%3Fx=y.db") { |db| commit_a_row(db) }
      made = Dir["**/*"].reject { |name| name.end_with?("-onewrite") }
      assert_equal ["+x y.db", "a b", "a b/c?d#e%20f&g.db", "file:x.db", "q?x=y.db", "über.db"], made.sort
    end
  end

  def test_a_uri_keeps_its_parameters
    db = open("file:#{path}?journal_mode=waldio&onewrite_group_commit=on#fragment")
    assert_equal %w[waldio on], OneWrite.check(db).values_at("mode", "group_commit")
    commit_a_row(db)
    assert_equal 1, open("file:#{path}?mode=ro").get_first_value("SELECT count(*) FROM t")
    assert_fails(/\Afile:.*onewrite_synk=full: #{path}2: unknown URI parameter onewrite_synk/) { open("file:#{path}2?onewrite_synk=full") }
  end

  def test_the_options_are_those_of_the_gem
    commit_a_row(open)
    reader = open(readonly: true, results_as_hash: true)
    assert reader.readonly?
    assert_equal [{ "x" => 1 }], reader.execute("SELECT x FROM t")
    OneWrite.check(reader)
    assert_raises(SQLite3::ReadOnlyException) { reader.execute("DELETE FROM t") }
    assert_fails(/unable to open database file/) { open("#{path} none", readwrite: true) }
    flags = SQLite3::Constants::Open::READWRITE
    assert_fails(/unable to open database file/) { open("#{path} none", flags: flags) }
    assert_equal 1, open(flags: flags).get_first_value("SELECT count(*) FROM t")
  end

  def test_names_with_parameters_are_refused
    Dir.chdir(directory) do
      ["app.db?vfs=onewrite", "app.db?x=y"].each do |name|
        text = "#{name} has parameters, but no \"file:\", so it names a file: use file:#{name}"
        assert_fails(text, ArgumentError) { open(name) }
      end
      assert_empty Dir["*"]
    end
  end

  def test_names_with_the_prefix_of_a_driver_are_refused
    Dir.chdir(directory) do
      {
        "sqlite3:w.db" => "w.db", "SQLite:w.db" => "w.db", "sqlite://w.db" => "w.db", "sqlite:///a/w.db" => "/a/w.db",
        "sqlite:w.db?mode=ro" => "file:w.db?mode=ro", "sqlite3:file:w.db?mode=ro" => "file:w.db?mode=ro"
      }.each do |name, usable|
        text = "#{name} has the prefix of a driver, so it names a file: use #{usable}"
        assert_fails(text, ArgumentError) { open(name) }
        assert_fails(text, ArgumentError) { OneWrite.uri(name) }
      end
      assert_empty Dir["*"]
      commit_a_row(open("./sqlite3:w.db"))
      assert File.exist?("sqlite3:w.db")
    end
  end

  def test_unknown_options_are_refused
    all = "it is one of mode, synchronous, timeout, or the gem's readonly, readwrite, flags, results_as_hash, " \
          "type_translation, utf16, strict, default_transaction_mode, extensions"
    {
      { journal_mode: "waldio" } => "unknown option journal_mode: use mode:",
      { sync: "OFF" } => "unknown option sync: use synchronous:",
      { busy_timeout: 1 } => "unknown option busy_timeout: use timeout:",
      { sychronous: "OFF" } => "unknown option sychronous: #{all}",
      { readonly: true, "mode" => "waldio" } => "unknown option mode: use mode:"
    }.each do |options, text|
      assert_fails(text, ArgumentError) { OneWrite.open(path, **options) }
    end
    assert_empty Dir["#{directory}/*"]
  end

  def test_every_option_that_the_gem_reads_is_known
    source = File.read(SQLite3::Database.instance_method(:initialize).source_location.first)
    read = source.scan(/\boptions\[:(\w+)\]/).flatten.uniq
    refute_empty read
    read.each do |name|
      OneWrite.open("#{path} #{name}", name.to_sym => nil) { |db| assert OneWrite.check(db) }
    end
  end

  def test_an_error_has_no_words_of_sqlite_for_how_it_was_found
    child = start(<<~RUBY, path)
      db = OneWrite.open(ARGV[0])
      db.execute("CREATE TABLE t(x)")
      puts "committed"
      $stdout.flush
      sleep #{MOST_SECONDS}
    RUBY
    assert_equal "committed\n", child.line
    child.signal("KILL")
    child.end("KILL")
    File.rename("#{path}-onewrite", "#{path}-lost")
    assert_fails(/\A#{path}: #{path}-onewrite: the database's newest/) { open }
  end

  def test_wrong_words_are_loud
    assert_fails("unknown mode \"wladio\": it is one of onewrite, waldio, swal, direct", ArgumentError) do
      open(mode: "wladio")
    end
    ["FUL", 2, nil].each do |level|
      text = "unknown synchronous #{level.inspect}: it is one of OFF, NORMAL, FULL, EXTRA"
      assert_fails(text, ArgumentError) { open(synchronous: level) }
    end
    assert_fails("the path has a NUL byte", ArgumentError) { open("#{path}\0x") }
    %w[vfs=unix journal_mode=direct].each do |parameter|
      assert_fails(/names #{parameter}, and onewrite is asked for\z/, ArgumentError) do
        open("file:#{path}?#{parameter}", mode: "onewrite")
      end
    end
    assert_fails(/unknown mode "delete"/, ArgumentError) { open("file:#{path}?journal_mode=delete") }
    assert_empty Dir["#{directory}/*"]
  end

  def test_a_database_in_memory_has_no_journal
    [":memory:", "", "sqlite3::memory:", "sqlite://", "file::memory:", "file:x?mode=memory&cache=shared"].each do |name|
      assert_fails("a database in memory has no journal: open it with SQLite3::Database.new") { open(name) }
    end
  end

  def test_a_file_that_cannot_be_opened_is_named_with_the_way_out
    missing = "#{directory}/not here"
    way_out = "unable to open database file: there is no directory #{missing}: make it first"
    assert_fails("#{missing}/x: #{way_out}") { open("#{missing}/x") }
    assert_fails("file:#{directory}/not%20here/x?mode=rwc: #{way_out}") { open("file:#{directory}/not%20here/x?mode=rwc") }
    text = "#{directory}: unable to open database file: #{directory} is a directory: name a file in it"
    assert_fails(text) { open(directory) }
    File.write(path, "no database " * 1000)
    assert_fails("#{path}: file is not a database") { open }
  end

  def test_a_stock_connection_in_the_way_is_named
    other = stock
    other.execute("CREATE TABLE t(x)")
    other.execute("PRAGMA journal_mode=WAL")
    other.execute("SELECT count(*) FROM t")
    text = /\A#{path}: cannot change into onewrite mode: .*another connection/m
    assert_fails(text) { open(timeout: 100) }
    other.close
    OneWrite.check(open)
  end

  # No other thread of Ruby runs while SQLite waits. So SQLite must not wait for the whole time.
  def test_a_connection_of_another_thread_is_waited_for
    other = stock
    other.execute("CREATE TABLE t(x)")
    other.execute("BEGIN EXCLUSIVE")
    thread = Thread.new do
      sleep 0.3
      other.execute("ROLLBACK")
    end
    OneWrite.check(open(timeout: MOST_SECONDS * 1000))
    thread.join
  end

  def test_processes_that_all_open_a_new_database_at_once
    code = <<~RUBY
      puts "ready"
      $stdout.flush
      $stdin.gets
      db = OneWrite.open(ARGV[0], timeout: 60_000)
      db.execute("CREATE TABLE IF NOT EXISTS t(x)")
      db.execute("INSERT INTO t VALUES(1)")
      OneWrite.check(db)
    RUBY
    children = Array.new(6) { start(code, path) }
    children.each { |child| assert_equal "ready\n", child.line }
    children.each(&:go)
    children.each(&:end)
    db = open
    assert_equal 6, db.get_first_value("SELECT count(*) FROM t")
    assert_equal "onewrite", OneWrite.check(db)["mode"]
  end

  def test_a_uri_for_other_code
    OneWrite.load
    uri = SQLite3::Constants::Open::READWRITE | SQLite3::Constants::Open::CREATE | 0x40
    db = stock(OneWrite.uri(path), flags: uri)
    commit_a_row(db)
    assert_equal "onewrite", OneWrite.check(db)["mode"]
    assert_equal "file:/a%20b/%3F%23?vfs=onewrite&journal_mode=swal", OneWrite.uri("//a b/?#", mode: "swal")
    assert_equal "file:x?vfs=onewrite", OneWrite.uri("x", mode: nil)
  end
end
