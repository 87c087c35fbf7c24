# frozen_string_literal: true

require_relative "error"

module OneWrite
  # Asks a connection of the gem sqlite3. Errors have SQLite's words only.
  module Handle # :nodoc:
    module_function

    # The first value of the first row, or nil if there is none.
    def ask(db, sql)
      db.get_first_value(sql)
    rescue SQLite3::Exception => e
      # From version 2 on, the text of the error also has the statement.
      raise Error.new(e.message.sub(/:\n#{Regexp.escape(sql)}.*\z/m, ""), e.code)
    end

    # The file of the database, as SQLite has it.
    def file(db)
      ask(db, "SELECT file FROM pragma_database_list WHERE name = 'main'").to_s
    end
  end
  private_constant :Handle
end
