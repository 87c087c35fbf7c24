# frozen_string_literal: true

require_relative "address"

module OneWrite
  # Why SQLite cannot open or write a database: its own words tell neither the place nor the way out.
  module Reason # :nodoc:
    ABOUT_FILES = /unable to open|read-?only/i

    module_function

    # Of a path or a URI, after an error. Nil where the files tell nothing.
    def and_way_out(name, said)
      return unless said.match?(ABOUT_FILES)

      path = File.absolute_path(Address.path_of(name))
      directory = File.dirname(path)
      return "there is no directory #{directory}: make it first" unless File.directory?(directory)
      return "#{path} is a directory: name a file in it" if File.directory?(path)
      if File.exist?(path) && !(File.readable?(path) && File.writable?(path))
        return "this user may not read and write #{path}: change its owner or mode"
      end
      return if File.writable?(directory) && File.executable?(directory)

      "this user may make no files in #{directory}, where the log lies, too: change its owner or mode"
    end
  end
  private_constant :Reason
end
