# frozen_string_literal: true

require "json"
require_relative "handle"

module OneWrite
  # Enters a mode, and checks `PRAGMA onewrite_status`. Errors do not name the database: callers do.
  module Status # :nodoc:
    module_function

    # Changes an open connection into a mode at a level. Without a mode: the one that it remembers.
    def enter(db, mode, level)
      Handle.ask(db, "PRAGMA journal_mode=#{mode || remembered(db)}")
      Handle.ask(db, "PRAGMA synchronous=#{Words::LEVELS[level]}")
      checked(db, mode, level)
    end

    def enter_stock(db, level)
      Handle.ask(db, "PRAGMA journal_mode=WAL")
      Handle.ask(db, "PRAGMA synchronous=#{Words::LEVELS[level]}")
    end

    def remembered(db)
      Handle.ask(db, "PRAGMA journal_mode") # opens the file
      status = read(db) || {}
      status["mode"] || status.dig("kept_out_of", "mode") || MODES.first
    end

    def read(db)
      answer = Handle.ask(db, "PRAGMA onewrite_status")
      answer && JSON.parse(answer)
    end

    def checked(db, mode, level)
      status = read(db)
      check_name(File.basename(Handle.file(db)), !status.nil?)
      raise Error, "the connection does not use onewrite: #{why_not}" if status.nil?

      check_mode(db, status, mode)
      check_level(status, level)
      status
    end

    def check_name(name, is_ours)
      return unless Address.meant_as_uri?(name, is_ours)

      raise Error, "the database is a file that is named #{name}, because SQLite took the URI for a name: open it " \
                   "by its path alone, or as file:..."
    end

    def why_not
      return Loader::ONLY_LINUX unless Loader.supported?

      "SQLite opened it with another VFS; use OneWrite.open, or call OneWrite.load(make_default: true) before you " \
        "open it"
    end

    def check_mode(db, status, mode)
      kept_out = status["kept_out_of"]
      if kept_out
        raise Error, "the database is not in #{mode || kept_out['mode'] || MODES.first} mode: #{kept_out['why']}"
      end

      found = status["mode"]
      if found.nil? || found != (mode || found)
        found ||= Handle.ask(db, "PRAGMA journal_mode")
        raise Error, "the database is in #{found} mode, not in #{mode || 'one of onewrite'}"
      end
      raise Error, "the log cannot be used any more: #{status['poisoned']}" if status["poisoned"]
    end

    # The status has the level that holds: onewrite_synchronous may raise the one of the pragma.
    def check_level(status, level)
      wanted = Words::LEVELS[level]
      found = Words.level(status["synchronous"])
      if found < level
        raise Error, "synchronous is #{Words::LEVELS[found]}, not #{wanted}: run PRAGMA synchronous=#{wanted}"
      end
      return if level < Words::FULL

      weak = { "sync" => ("normal" if status["sync"] == "normal"), "group_synch" => status["group_synch"] }
      weak.compact.each do |setting, word|
        raise Error, "onewrite_#{setting}=#{word} lets a power cut lose commits: it does not go with " \
                     "synchronous=#{wanted}"
      end
    end
  end
  private_constant :Status
end
