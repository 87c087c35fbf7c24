# frozen_string_literal: true

module OneWrite
  # The journal modes of onewrite.
  MODES = %w[onewrite waldio swal direct].freeze

  # The words that callers pass, and their check.
  module Words # :nodoc:
    # By SQLite's numbers.
    LEVELS = %w[OFF NORMAL FULL EXTRA].freeze
    FULL = 2
    # Options of `open`, and those of SQLite3::Database.new, which ignores any other.
    OURS = %i[mode synchronous timeout].freeze
    OF_THE_GEM = %i[
      readonly readwrite flags results_as_hash type_translation utf16 strict default_transaction_mode extensions
    ].freeze
    # Their names in other packages, in settings and in pragmas.
    OTHER_NAMES = {
      journal_mode: :mode, journal: :mode, onewrite_init: :mode, sync: :synchronous, onewrite_sync: :synchronous,
      onewrite_synchronous: :synchronous, level: :synchronous, busy_timeout: :timeout, read_only: :readonly
    }.freeze

    module_function

    # Nil stays so: any mode, or the one that the database remembers.
    def mode(word)
      word && MODES[place(word, "mode", MODES)]
    end

    def level(word)
      place(word, "synchronous", LEVELS)
    end

    # Refuses options that nobody knows.
    def options(given)
      name = given.keys.find { |key| !OF_THE_GEM.include?(key) } or return
      key = name.to_s.downcase.to_sym
      meant = OURS.include?(key) ? key : OTHER_NAMES[key]
      way_out = meant ? "use #{meant}:" : "it is one of #{OURS.join(', ')}, or the gem's #{OF_THE_GEM.join(', ')}"
      raise ArgumentError, "unknown option #{name}: #{way_out}"
    end

    def place(word, what, words)
      words.index { |known| known.casecmp?(word.to_s) } ||
        raise(ArgumentError, "unknown #{what} #{word.inspect}: it is one of #{words.join(', ')}")
    end
  end
  private_constant :Words
end
