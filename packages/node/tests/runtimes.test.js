// Deno with node:sqlite, and Bun with bun:sqlite.
'use strict';

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { describe, it } = require('node:test');
const { PACKAGE, environment, place } = require('./support');

const LIMIT_MS = 300_000;
/** A program cannot set these itself in Bun. */
const SET_BEFORE = { ONEWRITE_MAKE_DEFAULT: '1', ONEWRITE_UPGRADE_WAL: 'onewrite' };

const RUNTIMES = {
  Deno: { program: '@deno/linux-x64-glibc/deno', words: ['run', '--allow-all'], driver: "require('node:sqlite').DatabaseSync" },
  Bun: { program: '@oven/bun-linux-x64/bin/bun', words: ['run'], driver: "require('bun:sqlite').Database", variables: SET_BEFORE },
};

const inModules = (program) => path.join(process.env.NODE_PATH, program);

/** The lines that a program prints in a runtime, which must succeed. */
function printed(t, { program, words, driver }, code, variables = {}) {
  const { directory } = place(t);
  const file = path.join(directory, 'program.cjs');
  const prelude = `
    const onewrite = require(${JSON.stringify(PACKAGE)});
    const Driver = ${driver};
    const one = (db, sql) => Object.values(db.prepare(sql).get())[0];
    const said = (use) => { try { use(); return 'nothing'; } catch (error) { return error.name + ': ' + error.message; } };
  `;
  fs.writeFileSync(file, prelude + code);
  const env = environment({ DENO_DIR: directory, DENO_NO_UPDATE_CHECK: '1', ...variables });
  const done = spawnSync(inModules(program), [...words, file], { encoding: 'utf8', cwd: directory, env, timeout: LIMIT_MS });
  assert.equal(done.status, 0, `${done.error ?? ''} ${done.signal} ${done.stdout}\n${done.stderr}`);
  return done.stdout.trim().split('\n');
}

for (const [name, runtime] of Object.entries(RUNTIMES)) {
  if (!fs.existsSync(inModules(runtime.program))) {
    console.log(`SKIPPED: the Node package in ${name}: npm has none for this machine`);
    continue;
  }
  describe(`the package in ${name}`, () => {
    it('opens in the mode at FULL, and keeps it where a program asks for WAL', (t) => {
      const code = `
        const db = onewrite.open('app.db', { driver: Driver });
        db.exec('CREATE TABLE t(x)');
        db.prepare('INSERT INTO t VALUES(?)').run(1);
        const { mode, synchronous, guarded } = onewrite.check(db);
        console.log(mode, synchronous, guarded);
        console.log(one(db, 'PRAGMA journal_mode=WAL'), onewrite.check(db).mode);
        db.close();
        const again = onewrite.open('app.db', { driver: Driver, mode: 'onewrite' });
        console.log(one(again, 'SELECT count(*) FROM t'));
      `;
      assert.deepEqual(printed(t, runtime, code, runtime.variables), ['onewrite full true', 'wal onewrite', '1']);
    });

    it('says what is missing', (t) => {
      const code =
        name === 'Deno'
          ? "console.log(said(() => onewrite.load(new Driver(':memory:'))))"
          : "console.log(said(() => onewrite.open('app.db', { driver: Driver })))";
      const pattern =
        name === 'Deno'
          ? /^OneWriteError: cannot load .*: open the handle with \{ allowExtension: true \}$/
          : /^OneWriteError: .*start it with ONEWRITE_MAKE_DEFAULT=1 and ONEWRITE_UPGRADE_WAL=onewrite$/;
      assert.match(printed(t, runtime, code)[0], pattern);
    });
  });
}
