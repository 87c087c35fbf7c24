# frozen_string_literal: true

require "sqlite3"

module OneWrite
  # onewrite is not in use as it was asked for. The text has the reason.
  class Error < SQLite3::Exception
    BUSY = 5 # SQLITE_BUSY
    private_constant :BUSY

    def initialize(reason, code = nil)
      # SQLite's words for how it found the reason are left out.
      super(reason.sub("automatic extension loading failed: ", ""))
      @code = code
    end

    # Whether another connection is in the way.
    def busy? # :nodoc:
      !code.nil? && code & 0xff == BUSY
    end
  end
end
