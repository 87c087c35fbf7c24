# frozen_string_literal: true

# Active Record, where it is installed. ONEWRITE_TEST_FRAMEWORKS=1 says that it must be.

require_relative "support"

class ActiveRecordTest < Place
  CODE = <<~'RUBY'
    require "logger"
    require "active_record"
    OneWrite.load(make_default: true)
    ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ARGV[0], timeout: 5000)
    connection = ActiveRecord::Base.connection
    connection.execute("PRAGMA journal_mode=WAL")
    ARGV[1..].each { |sql| connection.execute(sql) }
    connection.execute("CREATE TABLE IF NOT EXISTS rows(id integer primary key, x integer)")
    class Row < ActiveRecord::Base; end
    Row.create!(x: 1)
    begin puts OneWrite.check(connection)["mode"]; rescue OneWrite::Error => e then puts e.message end
  RUBY

  def has_active_record?
    ENV["ONEWRITE_TEST_FRAMEWORKS"] == "1" || Gem::Specification.any? { |spec| spec.name == "activerecord" }
  end

  def test_a_database_by_its_path_is_in_the_mode
    return puts("SKIPPED: the Ruby package with Active Record: it is not installed") unless has_active_record?

    assert_equal "onewrite", printed(CODE, path)
    # Rails does so.
    said = printed(CODE, path, "PRAGMA synchronous=NORMAL")
    assert_equal "#{path}: synchronous is NORMAL, not FULL: run PRAGMA synchronous=FULL", said
    raised = printed(CODE, path, "PRAGMA synchronous=NORMAL", ONEWRITE_SYNCHRONOUS: "full")
    assert_equal "onewrite", raised
    assert_equal 3, open.get_first_value("SELECT count(*) FROM rows")
  end

  def test_a_database_by_its_uri_is_in_the_mode
    return unless has_active_record?

    assert_equal "onewrite", printed(CODE, OneWrite.uri(path))
  end
end
