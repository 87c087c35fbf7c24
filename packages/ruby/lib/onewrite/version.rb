# frozen_string_literal: true

module OneWrite
  VERSION = "0.1.0"
end
