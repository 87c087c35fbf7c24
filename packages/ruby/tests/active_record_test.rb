# frozen_string_literal: true

# Active Record, where it is installed. ONEWRITE_TEST_FRAMEWORKS=1 says that it must be.

require_relative "support"

class ActiveRecordTest < Place
  # Rails reads its database.yml like this. The arguments are the path and the first statements.
  CODE = <<~'RUBY'
    %w[logger erb yaml active_record].each { |name| require name }
    eval ARGV[1]
    ActiveRecord::Base.configurations = YAML.load(ERB.new(DATA_YML).result)
    ActiveRecord::Base.establish_connection(:test)
    connection = ActiveRecord::Base.connection
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS rows(id integer primary key, x integer)")
    class Row < ActiveRecord::Base; end
    flushed = -> { OneWrite.check(connection, synchronous: "NORMAL").values_at("flushes", "write_through").sum }
    begin
      before = flushed.call
      3.times { Row.create!(x: 1) }
      puts flushed.call - before >= 3
      puts OneWrite.check(connection)["mode"]
    rescue OneWrite::Error => e
      puts e.message
    end
  RUBY
  DATABASE = <<~YML
    test:
      adapter: sqlite3
      database: "<%= ARGV[0] %>"
      timeout: 5000
  YML
  AT_FULL = "  pragmas:\n    synchronous: full\n"
  # Rails 8.1 takes the name of the module.
  EXTENSION = <<~YML
    #{DATABASE}#{AT_FULL}  extensions:
        - <%= ActiveRecord.version < Gem::Version.new("8.1") ? OneWrite.to_path : "OneWrite" %>
  YML
  LOAD = "OneWrite.load(make_default: true)"

  def setup
    super
    is_there = ENV["ONEWRITE_TEST_FRAMEWORKS"] == "1" || Gem::Specification.any? { |spec| spec.name == "activerecord" }
    return if is_there

    puts "SKIPPED: the Ruby package with Active Record: it is not installed"
    skip
  end

  # Whether each of three commits was made durable, and the mode or why not.
  def told(yml, first = LOAD, database: path, more: "")
    code = "DATA_YML = #{yml.dump}\n" + CODE.sub("flushed =", "#{more}\nflushed =")
    printed(code, database, first).lines(chomp: true)
  end

  def at_normal
    'connection.execute("PRAGMA synchronous=NORMAL")'
  end

  def test_a_database_by_its_path_is_in_the_mode
    assert_equal %w[true onewrite], told(DATABASE + AT_FULL)
    assert_equal 3, open.get_first_value("SELECT count(*) FROM rows")
  end

  def test_a_database_by_its_uri_is_in_the_mode
    assert_equal %w[true onewrite], told(DATABASE + AT_FULL, "OneWrite.load", database: OneWrite.uri(path))
  end

  # Rails 7.1 and later say NORMAL themselves.
  def test_a_program_that_says_normal_commits_at_full_where_the_environment_says_so
    refusal = "#{path}: synchronous is NORMAL, not FULL: run PRAGMA synchronous=FULL"
    assert_equal ["false", refusal], told(DATABASE, more: at_normal)
    floor = %(ENV["ONEWRITE_SYNCHRONOUS"] = "full"\n#{LOAD})
    assert_equal %w[true onewrite], told(DATABASE, floor, more: at_normal)
  end

  # The connection that loads it is open already.
  def test_an_extension_of_the_configuration_needs_load_before
    assert_equal %w[true onewrite], told(EXTENSION)
    asks = "puts OneWrite.send(:const_get, :Loader).vfs?"
    is_known = Gem::Version.new(SQLite3::VERSION) >= Gem::Version.new("2.4")
    refusal = "the connection does not use onewrite: SQLite opened it with another VFS; use OneWrite.open, or call " \
              "OneWrite.load(make_default: true) before you open it"
    other = "#{directory}/other.db"
    assert_equal [is_known.to_s, "#{other}: #{refusal}"], told(EXTENSION, "", database: other, more: asks)
  end
end
