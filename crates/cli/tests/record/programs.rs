//! Unchanged programs of others: an ORM in Python under a script here, and one under Django; Perl's
//! DBI; PHP; and Subversion, which is C and many processes. Their results are the same in all modes,
//! recorded or run in one.

use std::path::Path;
use std::process::Command;

use super::common::{path, text};
use super::{ALL, assert_right, onewrite, python, record, record_command, replay};

/// SQLAlchemy's ORM: two mapped classes, a relationship, a refused row, updates, a cascade.
const ORM: &str = r#"
import sys
from sqlalchemy import create_engine, Column, Integer, String, DateTime, ForeignKey, func
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import declarative_base, relationship, sessionmaker
Base = declarative_base()
class User(Base):
    __tablename__ = "user"
    id = Column(Integer, primary_key=True)
    name = Column(String(30), unique=True)
    joined = Column(DateTime, server_default=func.now())
    addresses = relationship("Address", cascade="all, delete-orphan")
class Address(Base):
    __tablename__ = "address"
    id = Column(Integer, primary_key=True)
    email = Column(String)
    user_id = Column(Integer, ForeignKey("user.id"))
engine = create_engine("sqlite:///" + sys.argv[1])
Base.metadata.create_all(engine)
session = sessionmaker(bind=engine)()
for n in range(30):
    session.add(User(name="user %d" % n, addresses=[Address(email="u%d.%d@example.org" % (n, k)) for k in range(n % 4)]))
    session.commit()
for user in session.query(User).filter(User.name.like("user 1%")):
    user.name = user.name.upper()
session.commit()
session.delete(session.get(User, 7))
session.commit()
try:
    session.add(User(name="USER 1"))
    session.commit()
except IntegrityError:
    session.rollback()
print(session.query(User).count(), session.query(Address).count())
"#;

/// Perl's DBI: BLOBs, a cursor with updates under it, a rollback, a refused row.
const PERL: &str = r#"
use strict; use DBI;
my $db = DBI->connect("dbi:SQLite:dbname=$ARGV[0]", "", "", {RaiseError => 1, PrintError => 0, sqlite_unicode => 1});
$db->do("PRAGMA foreign_keys=ON");
$db->do("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT UNIQUE, price REAL, data BLOB)");
my $in = $db->prepare("INSERT INTO item (name, price, data) VALUES (?, ?, ?)");
for my $n (1 .. 30) {
    $in->bind_param(1, "item \x{e9} $n");
    $in->bind_param(2, $n / 3);
    $in->bind_param(3, pack("C*", 1 .. $n), DBI::SQL_BLOB());
    $in->execute;
}
$db->begin_work;
my $all = $db->prepare("SELECT id, price FROM item WHERE id % 3 = 0");
$all->execute;
while (my ($id, $price) = $all->fetchrow_array) { $db->do("UPDATE item SET price = ? WHERE id = ?", undef, $price * 2, $id) }
$db->rollback;
eval { $in->execute("item \x{e9} 1", 1, undef); 1 } and die "not refused";
print $db->selectrow_array("SELECT count(*) FROM item"), "\n";
$db->disconnect;
"#;

#[test]
fn an_orm_in_python_comes_to_the_same_and_runs_in_a_mode() {
    let Some(python) = python("sqlalchemy") else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = [path(&python), "-c", ORM];
    let trace = record(dir.path(), &program);
    assert_right(&replay(dir.path(), &trace, ALL));
    runs_in_a_mode(dir.path(), &program, "29 41\n");
}

#[test]
fn perl_comes_to_the_same_and_runs_in_a_mode() {
    let check = Command::new("perl")
        .args(["-MDBD::SQLite", "-e", "1"])
        .output();
    if !check.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: no Perl with DBD::SQLite (libdbd-sqlite3-perl)");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = ["perl", "-e", PERL];
    let trace = record(dir.path(), &program);
    assert_right(&replay(dir.path(), &trace, ALL));
    runs_in_a_mode(dir.path(), &program, "30\n");
}

/// PHP loads its modules past preloaded libraries (RTLD_DEEPBIND). Both of its drivers.
const PHP: &str = r#"
$db = new PDO('sqlite:' . $argv[1]);
$db->exec('CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT UNIQUE)');
$in = $db->prepare('INSERT INTO item (name) VALUES (?)');
for ($n = 1; $n <= 30; $n++) { $in->execute(["item $n"]); }
try { $in->execute(['item 1']); exit(1); } catch (PDOException) { }
$in = null;
$other = new SQLite3($argv[1]);
$other->enableExceptions(true);
$other->exec("DELETE FROM item WHERE id > 20");
echo $other->querySingle('SELECT count(*) FROM item'), "\n";
"#;

#[test]
fn php_comes_to_the_same_and_runs_in_a_mode() {
    let check = "exit((int) !(extension_loaded('pdo_sqlite') && extension_loaded('sqlite3')));";
    let check = Command::new("php").args(["-r", check]).output();
    if !check.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: no PHP with SQLite (packages php-cli and php-sqlite3)");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = ["php", "-r", PHP];
    let trace = record(dir.path(), &program);
    assert_right(&replay(dir.path(), &trace, ALL));
    runs_in_a_mode(dir.path(), &program, "20\n");
}

/// The C library searches a caller's own directories, and sees which caller it is.
#[test]
fn a_program_finds_the_libraries_of_its_own_directories() {
    const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    for (int turn = 0; turn < 2; turn++) puts(dlopen("libpart.so", RTLD_NOW | RTLD_DEEPBIND) ? "found" : dlerror());
    return 0;
}
"#;
    if !is_installed("cc", "gcc") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("parts")).expect("a directory");
    std::fs::write(at("part.c"), "int part(void) { return 1; }").expect("a file");
    std::fs::write(at("program.c"), PROGRAM).expect("a file");
    let script = "cc -shared -fPIC -o parts/libpart.so part.c
cc -o program program.c -Wl,--enable-new-dtags,-rpath,'$ORIGIN/parts' -ldl";
    in_shell(
        dir.path(),
        &[],
        &format!("cd {}\n{script}", path(dir.path())),
    );
    let output = onewrite(&["run", "--", path(&at("program"))]);
    assert_eq!(text(&output.stdout), "found\nfound\n");
}

/// `onewrite run` of a program that gets a database's path. It prints the expected text, the mode
/// was in use, and stock SQLite finds a database.
fn runs_in_a_mode(dir: &Path, program: &[&str], says: &str) {
    for mode in ["onewrite", "waldio", "direct"] {
        let database = dir.join(format!("{mode}.db"));
        let words = [&["run", "--mode", mode, "--"], program, &[path(&database)]].concat();
        let output = onewrite(&words);
        assert!(output.status.success(), "{mode}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), says, "{mode}");
        // The log that remembers the mode.
        assert!(dir.join(format!("{mode}.db-onewrite")).exists(), "{mode}");
        let check = rusqlite::Connection::open(&database).expect("a database");
        let found: String = check
            .query_row("PRAGMA integrity_check", (), |row| row.get(0))
            .expect("a check");
        assert_eq!(found, "ok", "{mode}");
    }
}

/// Whether a program is installed.
fn is_installed(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        println!("SKIPPED: no {program} (package {package})");
    }
    is_there
}

/// Runs a shell script in a directory, alone or after the words of `onewrite` that run it. Returns
/// its output.
fn in_shell(dir: &Path, before: &[&str], script: &str) -> String {
    let command = ["sh", "-ec", script];
    let output = match before {
        [] => Command::new("sh").args(&command[1..]).output(),
        _ => Ok(onewrite(&[before, &command].concat())),
    };
    let output = output.expect("a shell");
    let said = text(&output.stdout);
    assert!(
        output.status.success(),
        "{}: {said}{}",
        dir.display(),
        text(&output.stderr)
    );
    said.to_owned()
}

/// Django makes a project's tables and an administrator by its own migrations.
#[test]
fn django_comes_to_the_same_and_runs_in_a_mode() {
    let Some(python) = python("django") else {
        return;
    };
    let make = |name: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        let python = path(&python);
        let project = format!(
            "cd {}; {python} -m django startproject {name} .",
            path(dir.path())
        );
        in_shell(dir.path(), &[], &project);
        let script = format!(
            "cd {}; {python} manage.py migrate -v 0; DJANGO_SUPERUSER_PASSWORD=secret {python} manage.py \
             createsuperuser --noinput --username admin --email admin@example.org",
            path(dir.path())
        );
        (dir, script)
    };
    let (dir, script) = make("recorded");
    let trace = record_command(dir.path(), &["sh", "-ec", &script]);
    assert_right(&replay(dir.path(), &trace, ALL));

    let (dir, script) = make("ran");
    in_shell(dir.path(), &["run", "--mode", "onewrite", "--"], &script);
    assert!(dir.path().join("db.sqlite3-onewrite").exists());
    let database = rusqlite::Connection::open(dir.path().join("db.sqlite3")).expect("a database");
    let users = "SELECT group_concat(username) FROM auth_user";
    let users: String = database
        .query_row(users, (), |row| row.get(0))
        .expect("users");
    assert_eq!(users, "admin");
}

/// A working copy's whole life: each of these commands writes its database. Subversion clears a
/// statement's values before it resets it.
const WORKING_COPY: &str = "
svnadmin create repository
svn checkout -q file://$PWD/repository copy
cd copy
mkdir source pages
for n in $(seq 40); do seq $n > source/$n.txt; done
for n in $(seq 10); do seq $((n * 100)) > pages/$n.txt; done
svn add -q source pages
svn commit -q -m 'all of it'
svn move -q pages/1.txt pages/first.txt
svn propset -q svn:eol-style native source/7.txt
echo more >> source/8.txt
svn commit -q -m 'some of it'
svn update -q
echo changed > source/9.txt
svn cleanup
svn status
svn list -R | wc -l
";

#[test]
fn subversion_comes_to_the_same_and_runs_in_a_mode() {
    if !is_installed("svn", "subversion") {
        return;
    }
    let script = |dir: &Path| format!("cd {}\n{WORKING_COPY}", path(dir));
    let dir = tempfile::tempdir().expect("a directory");
    let trace = record_command(dir.path(), &["sh", "-ec", &script(dir.path())]);
    let document = replay(dir.path(), &trace, ALL);
    assert_right(&document);
    assert!(
        document["recorded"]["processes"].as_u64() > Some(5),
        "{document:#}"
    );

    let says = |before: &[&str]| {
        let dir = tempfile::tempdir().expect("a directory");
        in_shell(dir.path(), before, &script(dir.path()))
    };
    let plain = says(&[]);
    assert!(plain.contains("M       source/9.txt"), "{plain}");
    assert_eq!(says(&["run", "--mode", "onewrite", "--"]), plain);
}
