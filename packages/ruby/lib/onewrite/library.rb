# frozen_string_literal: true

require_relative "error"

module OneWrite
  # Finds the extension, and sees that it is whole and for the machine of this Ruby.
  module Library # :nodoc:
    # The command `onewrite` reads the same variable.
    VARIABLE = "ONEWRITE_EXTENSION_LIBRARY"
    OWN = File.expand_path("../../native/libonewrite.so", __dir__)
    HEADER = 64
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

    # Linux says "No such file" of a library that is for another machine. One that is cut short would end
    # the process.
    def check(path)
      way_out = "install onewrite again, or name another library in #{VARIABLE}"
      header = header(path) or raise Error, "cannot load #{path}: it is no shared library: #{way_out}"
      raise Error, "cannot load #{path}: it is cut short: #{way_out}" if File.size(path) < sections_end(header)

      found = machine(header)
      expected = machine(header("/proc/self/exe") || header)
      return if found == expected

      raise Error, "cannot load #{path}: it is for #{found}, and this Ruby is for #{expected}: #{way_out}"
    end

    # Nil where the file is no ELF file, or cannot be read.
    def header(path)
      header = File.binread(path, HEADER).to_s
      header if header.bytesize == HEADER && header.start_with?("\x7FELF".b)
    rescue SystemCallError
      nil
    end

    # The end of the table of sections, which linkers write last.
    def sections_end(header)
      start, bytes, count = header.unpack(bits(header) == 32 ? "@32L<@46S<S<" : "@40Q<@58S<S<")
      start + (bytes * count)
    end

    # Such as "x86_64, 64 bits".
    def machine(header)
      number = header[18, 2].unpack1("v")
      "#{MACHINES.fetch(number) { "machine #{number}" }}, #{bits(header)} bits"
    end

    def bits(header)
      header.getbyte(4) == 1 ? 32 : 64
    end
  end
  private_constant :Library
end
