# frozen_string_literal: true

require_relative "error"

module OneWrite
  # Finds the extension, and sees that it is for the machine of this Ruby.
  module Library # :nodoc:
    # The command `onewrite` reads the same variable.
    VARIABLE = "ONEWRITE_EXTENSION_LIBRARY"
    OWN = File.expand_path("../../native/libonewrite.so", __dir__)
    HEADER = 20
    # `e_machine` of elf(5).
    MACHINES = { 3 => "x86", 40 => "ARM", 62 => "x86_64", 183 => "aarch64", 243 => "RISC-V" }.freeze

    module_function

    def path
      named = ENV[VARIABLE].to_s
      return OWN if named.empty? && File.file?(OWN)
      return File.expand_path(named) if File.file?(named)
      raise Error, "#{VARIABLE}: there is no file #{named}" unless named.empty?

      raise Error, "this gem has no extension (#{OWN}): install the gem for this machine, or name the library in " \
                   "#{VARIABLE}"
    end

    # Linux says "No such file" of a library that is for another machine.
    def check_machine(path)
      way_out = "name another library in #{VARIABLE}"
      found = machine(path) or raise Error, "cannot load #{path}: it is no shared library: #{way_out}"
      expected = machine("/proc/self/exe") || found
      return if found == expected

      raise Error, "cannot load #{path}: it is for #{found}, and this Ruby is for #{expected}: #{way_out}"
    end

    # Such as "x86_64, 64 bits". Nil where the file is no ELF file, or cannot be read.
    def machine(path)
      header = File.binread(path, HEADER).to_s
      return unless header.bytesize == HEADER && header.start_with?("\x7FELF".b)

      number = header[18, 2].unpack1("v")
      "#{MACHINES.fetch(number) { "machine #{number}" }}, #{header.getbyte(4) == 1 ? 32 : 64} bits"
    rescue SystemCallError
      nil
    end
  end
  private_constant :Library
end
