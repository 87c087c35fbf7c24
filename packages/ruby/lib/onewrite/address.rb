# frozen_string_literal: true

require_relative "error"

module OneWrite
  # Names of databases: paths, and URIs of SQLite (`file:...`).
  module Address # :nodoc:
    # The start of a name for Active Record or Sequel.
    PREFIX = %r{\Asqlite3?:(//)?}in
    # The end of a path that was meant as a URI.
    PARAMETERS = %r{\?[^/]*=}n

    module_function

    # The path as bytes, which may be a String or a Pathname.
    def text(path)
      bytes = (path.respond_to?(:to_path) ? path.to_path : path.to_str).b
      raise ArgumentError, "the path has a NUL byte" if bytes.include?("\0")

      bytes
    end

    # The URI that opens a database with onewrite. Without `mode` the database stays in its own.
    def uri(path, mode)
      bytes = text(path)
      refuse_memory(bytes)
      refuse_prefix(bytes)
      wanted = { "vfs" => "onewrite", "journal_mode" => mode }.compact
      return of_path(bytes, wanted) unless bytes.start_with?("file:")

      uri, = bytes.split("#", 2)
      named = parameters(uri)
      wanted.each do |name, word|
        if named[name].nil?
          uri += "#{uri.include?('?') ? '&' : '?'}#{name}=#{word}"
        elsif named[name] != word
          raise ArgumentError, "#{path} names #{name}=#{named[name]}, and #{word} is asked for"
        end
      end
      uri.force_encoding(Encoding::UTF_8)
    end

    # The path of the file that a path or a URI names.
    def path_of(name)
      return name unless name.start_with?("file:")

      # An empty host, or "localhost", may come before an absolute path.
      unescaped(name.delete_prefix("file:").sub(/[?#].*/m, "").b).sub(%r{\A//(localhost)?/}, "/")
    end

    # The mode that a URI names, or nil.
    def mode_in(path)
      bytes = text(path)
      bytes.start_with?("file:") ? parameters(bytes)["journal_mode"] : nil
    end

    # Whether a file has a name that was meant as a URI. `is_ours`: it is open with onewrite.
    def meant_as_uri?(name, is_ours)
      name.match?(is_ours ? /[?&]vfs=/ : /\Afile:|[?&](vfs|journal_mode|onewrite_\w+)=/)
    end

    def of_path(bytes, wanted)
      if bytes.match?(PARAMETERS)
        raise ArgumentError, "#{bytes} has parameters, but no \"file:\", so it names a file: use file:#{bytes}"
      end

      # Two slashes would begin a host's name.
      escaped = bytes.sub(%r{\A/+}n, "/").gsub(%r{[^A-Za-z0-9/._~-]}n) { |byte| format("%%%02X", byte.ord) }
      "file:#{escaped}?#{wanted.map { |name, word| "#{name}=#{word}" }.join('&')}"
    end

    def refuse_prefix(bytes)
      bare = bytes.sub(PREFIX, "")
      return if bare == bytes

      usable = !bare.start_with?("file:") && bare.match?(PARAMETERS) ? "file:#{bare}" : bare
      raise ArgumentError, "#{bytes} has the prefix of a driver, so it names a file: use #{usable}"
    end

    def refuse_memory(bytes)
      is_memory = ["", ":memory:"].include?(bytes.sub(PREFIX, "")) || bytes.start_with?("file::memory:") ||
        (bytes.start_with?("file:") && parameters(bytes)["mode"] == "memory")
      raise Error, "a database in memory has no journal: open it with SQLite3::Database.new" if is_memory
    end

    def parameters(uri)
      query = uri.split("#", 2).first.to_s.split("?", 2)[1].to_s
      query.split("&").to_h { |pair| pair.split("=", 2).values_at(0, 1).map { |word| unescaped(word.to_s) } }
    end

    def unescaped(word)
      word.gsub(/%\h\h/n) { |code| code[1..].hex.chr }.force_encoding(Encoding::UTF_8)
    end
  end
  private_constant :Address
end
