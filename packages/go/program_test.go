package onewrite

// Programs of a user: a module of their own, with the package as it is released.

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

const documents = "../../docs/languages.md"

// around is what a user writes around the example: it prints where the library is, and the mode.
const around = `package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	onewrite "MODULE"
)

IMPORTS

func main() {
	STATEMENTS
	defer db.Close()
	if _, err = db.Exec("CREATE TABLE t(x)"); err != nil {
		log.Fatal(err)
	}
	status, err := onewrite.Check(context.Background(), db)
	path, _ := onewrite.LoadablePath()
	fmt.Println(path, status.Mode, err)
}
`

// example is the code of the document, with a module path as in go.mod, in two parts.
func example(t *testing.T) (imports, statements string) {
	t.Helper()
	text, err := os.ReadFile(documents)
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Go\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, code, isThere := strings.Cut(section, "```go\n")
	code, _, _ = strings.Cut(code, "```\n")
	if !isThere || strings.Count(code, "\n") > 10 {
		t.Fatalf("%s has no example of at most ten lines", documents)
	}
	imports, statements, _ = strings.Cut(code, "\n\n")
	equal(t, `import _ "`+module(t)+`"`, imports)
	readme, err := os.ReadFile("README.md")
	must(t, err)
	if !strings.Contains(string(readme), code) {
		t.Fatal("README.md has another example")
	}
	return imports, statements
}

func module(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("go.mod")
	must(t, err)
	return string(regexp.MustCompile(`(?m)^module (\S+)`).FindSubmatch(text)[1])
}

// release copies the package into a directory, with the library as a release has it.
func release(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	files, err := filepath.Glob("*.*")
	must(t, err)
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			copyFile(t, file, filepath.Join(directory, file), 0o600)
		}
	}
	for _, processor := range []string{"amd64", "arm64", "arm"} {
		place := filepath.Join(directory, "lib/linux_"+processor)
		must(t, os.MkdirAll(place, 0o700))
		must(t, os.WriteFile(filepath.Join(place, ".keep"), nil, 0o600))
	}
	copyFile(t, os.Getenv(libraryVariable), filepath.Join(directory, "lib/linux_"+runtime.GOARCH, libraryName), 0o600)
	return directory
}

// program writes the example as a module of its own.
func program(t *testing.T) string {
	t.Helper()
	imports, statements := example(t)
	text := strings.NewReplacer("MODULE", module(t), "IMPORTS", imports, "STATEMENTS", statements).Replace(around)
	directory := t.TempDir()
	must(t, os.WriteFile(filepath.Join(directory, "main.go"), []byte(text), 0o600))
	copyFile(t, "go.sum", filepath.Join(directory, "go.sum"), 0o600)
	manifest, err := os.ReadFile("go.mod")
	must(t, err)
	// The same driver, and the package from its directory.
	lines := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(manifest), "module app")
	lines += "\nrequire " + module(t) + " v0.0.0\nreplace " + module(t) + " => " + release(t) + "\n"
	must(t, os.WriteFile(filepath.Join(directory, "go.mod"), []byte(lines), 0o600))
	return directory
}

func build(t *testing.T, directory string, variables ...string) {
	t.Helper()
	command := exec.Command("go", "build", "-o", "app", ".") // `go test` puts its own directory first
	command.Dir = directory
	command.Env = append(os.Environ(), variables...)
	printed(t, command)
}

// runIn runs the program in its directory, without the variable that names a library.
func runIn(directory string) (string, error) {
	command := exec.Command("./app")
	command.Dir = directory
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ONEWRITE_") {
			command.Env = append(command.Env, variable)
		}
	}
	output, err := command.CombinedOutput()
	return strings.TrimSpace(string(output)), err
}

func TestTheExampleOfTheDocumentsWithTheEmbeddedLibrary(t *testing.T) {
	directory := program(t)
	build(t, directory)
	said, err := runIn(directory)
	must(t, err)
	if !regexp.MustCompile(`^/proc/self/fd/\d+ onewrite <nil>$`).MatchString(said) {
		t.Fatalf("the program says %s", said)
	}
	left, err := filepath.Glob(filepath.Join(directory, "*.so"))
	must(t, err)
	equal(t, 0, len(left))
	database, err := os.Stat(filepath.Join(directory, "app.db"))
	must(t, err)
	equal(t, true, database.Size() > 0)
}

func TestAProgramWithoutCgoSaysWhatItNeeds(t *testing.T) {
	directory := program(t)
	build(t, directory, "CGO_ENABLED=0")
	said, err := runIn(directory)
	if err == nil {
		t.Fatalf("it has no SQLite, and says %s", said)
	}
	equal(t, true, strings.Contains(said, "built without cgo") && strings.Contains(said, "CGO_ENABLED=1"))
}
