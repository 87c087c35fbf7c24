# frozen_string_literal: true

# The gem is what its files say, and the examples of the documents run as they stand there.

require_relative "support"

class Package < Place
  MOST_LINES = 10

  def read(name)
    File.read(File.join(ROOT, name), encoding: "UTF-8")
  end

  # The examples in Ruby below a heading.
  def examples(name, after)
    read(name).split(after, 2)[1].split("\n## ", 2)[0].scan(/```ruby\n(.*?)```/m).flatten
  end

  def test_versions_are_the_same
    assert_equal read("Cargo.toml")[/^version = "(.+)"/, 1], OneWrite::VERSION
  end

  def test_the_gem_has_each_file_that_it_requires
    spec = Gem::Specification.load("#{PACKAGE}/onewrite.gemspec")
    files = Dir.chdir(PACKAGE) { Dir["lib/**/*.rb"] }
    assert_empty files - spec.files
    assert_equal [OneWrite::VERSION, "ruby"], [spec.version.to_s, spec.platform.to_s]
  end

  def test_the_examples_run
    example, bare = examples("docs/languages.md", "\n## Ruby\n")
    assert_equal [example], examples("packages/ruby/README.md", "# onewrite")
    FileUtils.cp(OneWrite.loadable_path, "#{directory}/libonewrite.so")
    [example, bare].each do |text|
      assert_operator text.lines.count, :<=, MOST_LINES
      assert_equal "onewrite", printed("#{text}\nputs OneWrite.check(db)['mode']")
    end
    assert_equal 1, open.get_first_value("SELECT count(*) FROM t")
  end
end
