// Commits with the installed package, and is killed; or reads back.
//
//   node commit.js DATABASE write    ends by SIGKILL
//   node commit.js DATABASE read     ends with 0 if each commit is there
//
// scripts/release installs the package and runs it.
'use strict';

const assert = require('node:assert/strict');
const Database = require('libsql');
const onewrite = require('onewrite');

const ROWS = 50;

const [, , file, what] = process.argv;
const db = onewrite.open(file, { driver: Database });
const one = (sql) => Object.values(db.prepare(sql).get())[0];

assert.equal(onewrite.check(db).mode, 'onewrite');
if (what === 'write') {
  db.exec('CREATE TABLE t(x)');
  for (let row = 0; row < ROWS; row++) db.prepare('INSERT INTO t VALUES(?)').run('a row');
  process.kill(process.pid, 'SIGKILL');
}
assert.equal(one("SELECT count(*) FROM t WHERE x = 'a row'"), ROWS);
assert.equal(one('PRAGMA integrity_check'), 'ok');
db.close();
