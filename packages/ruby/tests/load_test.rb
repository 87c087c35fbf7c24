# frozen_string_literal: true

# load, loadable_path and to_path, each in a process of its own.

require_relative "support"

class Load < Place
  SAYS = "begin %s; puts 'nothing'; rescue OneWrite::Error => e then puts e.message end\n"
  NOWHERE = "/nowhere/libonewrite.so"

  def says(*uses, **variables)
    printed(uses.map { |use| format(SAYS, use) }.join, **variables).lines(chomp: true)
  end

  def test_it_makes_the_vfs_available_once_and_again
    code = <<~RUBY
      p OneWrite.load, OneWrite.load, ENV["ONEWRITE_UPGRADE_WAL"]
      db = SQLite3::Database.new("app.db", {}, "onewrite")
      p db.get_first_value("PRAGMA journal_mode=onewrite")
    RUBY
    assert_equal %(true\ntrue\n"onewrite"\n"onewrite"), printed(code)
  end

  def test_it_makes_onewrite_the_default_only_when_asked
    code = <<~RUBY
      [false, true].each do |make_default|
        OneWrite.load(make_default: make_default)
        p SQLite3::Database.new("app.db").get_first_value("PRAGMA onewrite_status").nil?
      end
      p ENV["ONEWRITE_MAKE_DEFAULT"]
    RUBY
    assert_equal "true\nfalse\nnil", printed(code)
  end

  def test_from_threads
    assert_equal "[true]", printed("p Array.new(8) { Thread.new { OneWrite.load } }.map(&:value).uniq")
  end

  def test_it_leaves_what_the_environment_says_of_wal
    code = <<~RUBY + format(SAYS, "OneWrite.check(db)")
      db = OneWrite.open("app.db")
      puts db.get_first_value("PRAGMA journal_mode=WAL")
    RUBY
    said = printed(code, ONEWRITE_UPGRADE_WAL: "0")
    assert_equal "wal\n#{path}: the database is in wal mode, not in one of onewrite", said
  end

  def test_to_path_is_what_extensions_take
    code = <<~RUBY
      db = SQLite3::Database.new(":memory:")
      db.enable_load_extension(true)
      db.load_extension(OneWrite.to_path)
      p SQLite3::Database.new("app.db", {}, "onewrite").get_first_value("PRAGMA journal_mode=onewrite")
    RUBY
    assert_equal '"onewrite"', printed(code)
    return unless Gem::Version.new(SQLite3::VERSION) >= Gem::Version.new("2.4")

    code = 'SQLite3::Database.new(":memory:", extensions: [OneWrite]); p OneWrite.send(:const_get, :Loader).vfs?'
    assert_equal "true", printed(code)
  end

  def test_a_library_that_is_not_there_is_named
    uses = ["OneWrite.loadable_path", "OneWrite.to_path", "OneWrite.load", "OneWrite.open('x')"]
    text = "ONEWRITE_EXTENSION_LIBRARY: there is no file #{NOWHERE}"
    assert_equal [text] * 4, says(*uses, ONEWRITE_EXTENSION_LIBRARY: NOWHERE)
    own = "#{PACKAGE}/native/libonewrite.so"
    text = "this gem has no extension (#{own}): install the gem for this machine, or name the library in " \
           "ONEWRITE_EXTENSION_LIBRARY"
    assert_equal [text] * 4, says(*uses, ONEWRITE_EXTENSION_LIBRARY: nil) unless File.exist?(own)
  end

  def test_a_library_for_another_machine_one_that_is_damaged_and_one_that_is_none
    library = "#{directory}/libonewrite.so"
    real = File.binread(OneWrite.loadable_path)
    # e_machine and the class of elf(5).
    name, number = real.getbyte(18) == 183 ? ["x86_64", 62] : ["aarch64", 183]
    other, arm = Array.new(2) { real.dup }
    other.setbyte(18, number)
    arm.setbyte(18, 40)
    arm.setbyte(4, 1)
    {
      "it is for #{name}, 64 bits, and this Ruby is for " => other,
      "it is for ARM, 32 bits, and this Ruby is for " => arm,
      "it is no shared library: install onewrite again, or name another library in ONEWRITE_EXTENSION_LIBRARY" =>
        "no library, but longer than a header" * 2,
      "it is no shared library" => "\x7FELF",
      "it is no shared library: install" => real[0, 40],
      "it is cut short: install" => real[0..-2],
    }.each do |text, contents|
      File.binwrite(library, contents)
      said, = says("OneWrite.open('x')", ONEWRITE_EXTENSION_LIBRARY: library)
      assert said.start_with?("cannot load #{library}: #{text}"), said
    end
  end

  def test_other_systems_get_a_warning_and_stock_wal
    code = <<~RUBY + format(SAYS, "OneWrite.check(db)")
      $stderr = $stdout
      p OneWrite.load
      db = OneWrite.open("app.db", mode: "waldio")
      p db.get_first_value("PRAGMA journal_mode"), db.get_first_value("PRAGMA synchronous")
    RUBY
    warning = "warning: onewrite runs on Linux only: databases are in stock WAL here"
    refusal = "#{path}: the connection does not use onewrite: onewrite runs on Linux only"
    %w[x86_64-darwin23 x64-mingw-ucrt].each do |system|
      said = printed("Object.send(:remove_const, :RUBY_PLATFORM); RUBY_PLATFORM = ARGV[0].dup\n#{code}", system)
      said = said.lines(chomp: true).map { |line| line.sub(/\A.*(?=warning: )/, "") }
      assert_equal [warning, "false", warning, '"wal"', "2", refusal], said
    end
  end
end
