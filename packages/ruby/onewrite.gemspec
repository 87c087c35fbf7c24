# frozen_string_literal: true

require_relative "lib/onewrite/version"

# scripts/release sets ONEWRITE_GEM_PLATFORM, for a gem with the extension in `native`.
Gem::Specification.new do |spec|
  spec.name = "onewrite"
  spec.version = OneWrite::VERSION
  spec.summary = "Durable SQLite commits in one device write"
  spec.description = "A VFS for SQLite with journal modes that make a commit durable in one device write."
  spec.authors = ["The maintainers of onewrite"]
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.platform = ENV.fetch("ONEWRITE_GEM_PLATFORM", Gem::Platform::RUBY)
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir.chdir(__dir__) { Dir["README.md", "LICENSE-*", "lib/**/*.rb", "native/*.so"].sort }
  spec.add_dependency "sqlite3", ">= 1.4"
end
