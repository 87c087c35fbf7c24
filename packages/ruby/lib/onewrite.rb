# frozen_string_literal: true

require_relative "onewrite/version"
require_relative "onewrite/error"
require_relative "onewrite/words"
require_relative "onewrite/address"
require_relative "onewrite/handle"
require_relative "onewrite/library"
require_relative "onewrite/loader"
require_relative "onewrite/reason"
require_relative "onewrite/status"

# Durable SQLite commits in one device write, for the gem sqlite3.
#
#   db = OneWrite.open("app.db")
#
# The database is then in journal mode `onewrite` at synchronous=FULL, or `open` has raised. A database
# that remembers another of MODES stays in that one.
module OneWrite
  RETRY_SECONDS = 0.02
  MOST_BUSY_MILLISECONDS = 100
  private_constant :RETRY_SECONDS, :MOST_BUSY_MILLISECONDS

  class << self
    # Opens a database like SQLite3::Database.new, in a journal mode of onewrite, and checks it. With a
    # block it yields the database, closes it, and returns the block's value.
    #
    # Without `mode` it is the one that the database remembers, and `onewrite` for any other database. The
    # path may be a URI (`file:...`), with settings of onewrite as its parameters. The other options are the
    # gem's. Another connection that is in the way is waited for, `timeout` milliseconds long.
    #
    # Raises Error with the reason if the database is not in that mode at `synchronous`, and ArgumentError
    # for an unknown word or option. On systems other than Linux it warns, and opens in stock WAL.
    def open(path, mode: nil, synchronous: "FULL", timeout: 5000, **options)
      Words.options(options)
      uri = Address.uri(path, Words.mode(mode))
      mode = Words.mode(mode || Address.mode_in(path))
      level = Words.level(synchronous)
      name = Loader.load(false) ? uri : Address.text(path).force_encoding(Encoding::UTF_8)
      db = opened(path, timeout) do
        connection(name, timeout, options) { |new| enter(new, mode, level) }
      end
      return db unless block_given?

      begin
        yield db
      ensure
        db.close
      end
    end

    # Returns `PRAGMA onewrite_status` as a Hash if the database is in the mode, and its commits are at
    # least as durable as `synchronous`. Raises Error with the reason otherwise. Without `mode` any mode of
    # onewrite will do. `db` may also be a connection of Active Record.
    def check(db, mode: nil, synchronous: "FULL")
      db = db.raw_connection if db.respond_to?(:raw_connection)
      mode, level = Words.mode(mode), Words.level(synchronous)
      begin
        Status.checked(db, mode, level)
      rescue Error => e
        file = Handle.file(db)
        raise Error.new("#{file.empty? ? 'a database in memory' : file}: #{e.message}", e.code)
      end
    end

    # Makes the VFS available to databases that this process opens later: by `uri`, or by any name with
    # `make_default`.
    #
    # A program that asks for WAL keeps the mode of onewrite, because this sets ONEWRITE_UPGRADE_WAL unless
    # the environment has it. Returns whether the VFS is there: false, with a warning, on systems other
    # than Linux. Raises Error if it cannot be loaded.
    def load(make_default: false)
      Loader.load(make_default)
    end

    # The path of the loadable extension, for other drivers.
    def loadable_path
      Library.path
    end

    # The same, so that `extensions:` of the gem sqlite3 and of Rails takes this module. The connection that
    # loads it is open already, and does not use onewrite.
    alias to_path loadable_path

    # The URI that opens a database with onewrite: call `load` first. It changes a database that is in
    # another mode, unless `mode` is nil.
    def uri(path, mode: MODES.first)
      Address.uri(path, Words.mode(mode))
    end

    private

    # Opens until no other connection is in the way, or its time is over.
    def opened(path, timeout)
      deadline = now + timeout / 1000.0
      begin
        yield
      rescue Error => e
        raise named(path, e) unless e.busy? && now < deadline

        sleep(RETRY_SECONDS * (1 + rand))
        retry
      end
    end

    # An open connection is in the way of others that wait, too. So each try opens another one. SQLite waits
    # only shortly by itself, because no other thread of Ruby runs meanwhile.
    def connection(name, timeout, options)
      db = SQLite3::Database.new(name, with_uris(options))
      db.busy_timeout([timeout, MOST_BUSY_MILLISECONDS].min)
      yield db
      db.busy_timeout(timeout)
      is_entered = true
      db
    rescue SQLite3::Exception => e
      raise e.is_a?(Error) ? e : Error.new(e.message, e.code)
    ensure
      db&.close unless is_entered
    end

    # The gem takes `flags` alone, without `readonly` and `readwrite`.
    def with_uris(options)
      open = SQLite3::Constants::Open
      flags = options[:flags]
      flags ||= open::READONLY if options[:readonly]
      flags ||= open::READWRITE | (options[:readwrite] ? 0 : open::CREATE)
      options.except(:readonly, :readwrite).merge(flags: flags | Loader::URI)
    end

    def enter(db, mode, level)
      Loader.supported? ? Status.enter(db, mode, level) : Status.enter_stock(db, level)
    end

    def named(path, error)
      text = Address.text(path).force_encoding(Encoding::UTF_8)
      Error.new([text, error.message, Reason.and_way_out(text, error.message)].compact.join(": "), error.code)
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
