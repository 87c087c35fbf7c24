# frozen_string_literal: true

# Helpers of the tests: a directory for each test, and processes that run Ruby.

require "minitest/autorun"
require "fileutils"
require "open3"
require "securerandom"
require "timeout"
require "tmpdir"
require "onewrite"

ROOT = File.expand_path("../../..", __dir__)
PACKAGE = File.expand_path("..", __dir__)
# A process that hangs fails after this.
MOST_SECONDS = 120
# The package sets these here, and children must not inherit them.
OWN_VARIABLES = { "ONEWRITE_UPGRADE_WAL" => nil, "ONEWRITE_MAKE_DEFAULT" => nil }.freeze

# A process that runs Ruby code, with the package.
class Child
  def initialize(directory, code, arguments, variables)
    command = [RbConfig.ruby, *$LOAD_PATH.flat_map { |path| ["-I", path] }, "-r", "onewrite", "-e", code]
    @errors = File.join(directory, "errors of #{SecureRandom.hex(4)}")
    @input, @output, @waiter = Open3.popen2(
      OWN_VARIABLES.merge(variables), *command, *arguments.map(&:to_s), chdir: directory, err: @errors
    )
    @deadline = now + MOST_SECONDS
  end

  def line
    bounded { @output.gets } or raise "a process ended: #{File.read(@errors)}"
  end

  # Lets a process go on that waits for a line.
  def go
    @input.puts
  end

  def signal(name)
    Process.kill(name, @waiter.pid)
  end

  # The rest of the output of a process that must succeed, or be killed by this signal.
  def end(signal = nil)
    @input.close
    said = bounded { @output.read }
    status = bounded { @waiter.value }
    ended = signal ? status.termsig == Signal.list[signal] : status.success?
    raise "a process ended with #{status}: #{said}#{File.read(@errors)}" unless ended

    said
  end

  def kill
    signal("KILL") if @waiter.alive?
    @waiter.join
    [@input, @output].each(&:close)
  end

  private

  def bounded(&block)
    Timeout.timeout([@deadline - now, 0.001].max, &block)
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

# A directory with a database in it.
class Place < Minitest::Test
  attr_reader :directory, :path

  def setup
    @directory = File.realpath(Dir.mktmpdir("onewrite-"))
    @path = File.join(@directory, "app.db")
    @opened = []
    @children = []
  end

  def teardown
    @opened.each { |db| db.close unless db.closed? }
    @children.each(&:kill)
    FileUtils.rm_rf(@directory)
  end

  def open(path = @path, **options)
    OneWrite.open(path, **options).tap { |db| @opened << db }
  end

  # A connection of the gem without the helper.
  def stock(path = @path, **options)
    SQLite3::Database.new(path, **options).tap { |db| @opened << db }
  end

  def start(code, *arguments, **variables)
    Child.new(directory, code, arguments, variables.transform_keys(&:to_s)).tap { |child| @children << child }
  end

  # The output of a process that must succeed.
  def printed(code, *arguments, **variables)
    start(code, *arguments, **variables).end.chomp
  end

  def commit_a_row(db)
    db.execute("CREATE TABLE IF NOT EXISTS t(x)")
    db.execute("INSERT INTO t VALUES(1)")
  end

  # Expects an error with this text, or with a match of this pattern.
  def assert_fails(text, error = OneWrite::Error, &block)
    found = assert_raises(error, &block).message
    text.is_a?(Regexp) ? assert_match(text, found) : assert_equal(text, found)
  end
end
