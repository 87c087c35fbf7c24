# frozen_string_literal: true

module OneWrite
  # The journal modes of onewrite.
  MODES = %w[onewrite waldio swal direct].freeze

  # The words that callers pass, and their check.
  module Words # :nodoc:
    # By SQLite's numbers.
    LEVELS = %w[OFF NORMAL FULL EXTRA].freeze
    FULL = 2

    module_function

    # Nil stays so: any mode, or the one that the database remembers.
    def mode(word)
      word && MODES[place(word, "mode", MODES)]
    end

    def level(word)
      place(word, "synchronous", LEVELS)
    end

    def place(word, what, words)
      words.index { |known| known.casecmp?(word.to_s) } ||
        raise(ArgumentError, "unknown #{what} #{word.inspect}: it is one of #{words.join(', ')}")
    end
  end
  private_constant :Words
end
