# frozen_string_literal: true

require_relative "handle"
require_relative "library"

module OneWrite
  # Loads the extension into the SQLite of the gem sqlite3. It stays there for the whole process.
  module Loader # :nodoc:
    UPGRADE_VARIABLE = "ONEWRITE_UPGRADE_WAL"
    DEFAULT_VARIABLE = "ONEWRITE_MAKE_DEFAULT"
    ONLY_LINUX = "onewrite runs on Linux only"
    URI = 0x40 # SQLITE_OPEN_URI
    LOCK = Mutex.new

    module_function

    def supported?
      RUBY_PLATFORM.include?("linux")
    end

    # Returns whether the VFS is there: false, with a warning, on systems other than Linux.
    def load(make_default)
      unless supported?
        warn "#{ONLY_LINUX}: databases are in stock WAL here", uplevel: 2
        return false
      end
      # A program that asks for WAL keeps the mode.
      ENV[UPGRADE_VARIABLE] ||= "onewrite"
      LOCK.synchronize do
        unless loaded?(make_default)
          load_library(make_default)
          loaded?(make_default) or raise Error, "the extension was loaded, but SQLite has no VFS onewrite"
        end
      end
      true
    end

    def loaded?(make_default)
      vfs? && (!make_default || default?)
    end

    def vfs?
      SQLite3::Database.new("file::memory:?vfs=onewrite", flags: SQLite3::Constants::Open::READWRITE | URI).close
      true
    rescue SQLite3::Exception => e
      raise unless e.message.include?("no such vfs")

      false
    end

    # The pragma is answered before SQLite reads the file, so any file will do.
    def default?
      db = SQLite3::Database.new(__FILE__, readonly: true)
      !Handle.ask(db, "PRAGMA onewrite_status").nil?
    ensure
      db&.close
    end

    def load_library(make_default)
      path = Library.path
      Library.check(path)
      with_default(make_default) { load_by(SQLite3::Database.new(":memory:"), path) }
    end

    # Child processes do not inherit the variable.
    def with_default(make_default)
      had = ENV.fetch(DEFAULT_VARIABLE, nil)
      ENV[DEFAULT_VARIABLE] = "1" if make_default
      yield
    ensure
      ENV[DEFAULT_VARIABLE] = had
    end

    def load_by(db, path)
      unless db.respond_to?(:load_extension)
        raise Error, "cannot load #{path}: this gem sqlite3 loads no extensions: build it with a SQLite that does"
      end

      db.enable_load_extension(true)
      # SQLite tries the name as it is, then with ".so", and reports the error of the last try. Without
      # ".so" that is the error of the file itself.
      db.load_extension(path.delete_suffix(".so"))
    rescue SQLite3::Exception, RuntimeError => e
      raise e.is_a?(Error) ? e : Error.new("cannot load #{path}: #{e.message}")
    ensure
      db.close
    end
  end
  private_constant :Loader
end
