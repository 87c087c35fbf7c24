// open, with each driver that this Node runs.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { describe, it } = require('node:test');
const { pathToFileURL } = require('node:url');
const onewrite = require('..');
const { SYNC_DRIVERS, available, closing, collected, commitARow, driverOf, one, place, printed, start, stock, takesUris } = require('./support');

const LEVELS = ['OFF', 'normal', 'FULL', 'EXTRA'];

for (const name of available(SYNC_DRIVERS)) {
  const driver = driverOf(name);
  const open = (t, file, options = {}) => closing(t, onewrite.open(file, { driver, ...options }));

  describe(`open with ${name}`, () => {
    it('opens in the mode at FULL', (t) => {
      const db = open(t, place(t).file);
      assert.ok(db instanceof driver);
      commitARow(db);
      const status = onewrite.check(db);
      assert.deepEqual([status.mode, status.guarded, status.version], ['onewrite', true, require('../package.json').version]);
      assert.equal(one(db, 'PRAGMA synchronous'), 2);
      assert.ok(status.writes > 0);
    });

    it('takes every mode and level', (t) => {
      const { directory } = place(t);
      const pairs = [...onewrite.MODES.map((mode) => [mode, 'FULL']), ...LEVELS.map((level) => ['onewrite', level])];
      for (const [mode, synchronous] of pairs) {
        const db = open(t, path.join(directory, `${mode} ${synchronous}`), { mode: mode.toUpperCase(), synchronous });
        commitARow(db);
        assert.equal(onewrite.check(db, { mode, synchronous }).mode, mode);
        assert.equal(one(db, 'PRAGMA synchronous'), LEVELS.indexOf(synchronous));
      }
    });

    it('keeps the mode that a database remembers, also where a program asks for WAL', async (t) => {
      const { directory } = place(t);
      for (const mode of onewrite.MODES) {
        const file = path.join(directory, mode);
        const closed = async (db) => (db.close(), await collected());
        await closed(open(t, file, { mode }));
        for (let round = 0; round < 2; round++) {
          const db = open(t, file);
          assert.equal(onewrite.check(db).mode, mode);
          assert.equal(one(db, 'PRAGMA journal_mode=WAL'), 'wal');
          commitARow(db);
          assert.equal(onewrite.check(db, { mode }).mode, mode);
          await closed(db);
        }
        assert.equal(onewrite.check(open(t, file, { mode: 'onewrite' })).mode, 'onewrite');
      }
    });

    it('takes over a stock database, which is stock again after the last close', async (t) => {
      const { file } = place(t);
      await (await stock(t, file, 'CREATE TABLE t(x)', 'INSERT INTO t VALUES(1)')).close();
      const db = open(t, file);
      commitARow(db);
      db.close();
      await collected();
      await (await stock(t, file, 'INSERT INTO t VALUES(3)')).close();
      assert.equal(one(open(t, file), 'SELECT count(*) FROM t'), 3);
    });

    it('takes names of all kinds', (t) => {
      const { directory } = place(t);
      fs.mkdirSync(path.join(directory, 'a b'));
      for (const each of ['a b/c?d#e%20f&g=h.db', 'über.db', 'file:x.db']) {
        const file = path.join(directory, each);
        for (const form of [file, pathToFileURL(file), `/${file}`]) commitARow(open(t, form));
        assert.ok(fs.existsSync(file), file);
      }
      const before = process.cwd();
      process.chdir(directory);
      try {
        commitARow(open(t, 'relative.db'));
      } finally {
        process.chdir(before);
      }
      assert.ok(fs.existsSync(path.join(directory, 'relative.db')));
    });

    it('takes a URI with settings, or says that the driver takes none', (t) => {
      const { directory, file } = place(t);
      const uri = `file:${file}?onewrite_compression=zstd`;
      if (!takesUris(name)) {
        for (const form of [uri, 'file:app.db?vfs=onewrite', new URL(`${pathToFileURL(file)}?onewrite_compression=zstd`)]) {
          assert.throws(() => open(t, form), /takes no URIs, and would make a file that is named file:.*path alone/);
        }
        assert.deepEqual(fs.readdirSync(directory), []);
        assert.ok(!fs.existsSync('file:app.db?vfs=onewrite'));
        return;
      }
      assert.equal(onewrite.check(open(t, uri)).compression, 'zstd');
      assert.throws(() => open(t, `file:${file}?onewrite_synk=full`), { name: 'OneWriteError' });
      for (const parameter of ['vfs=unix', 'journal_mode=direct']) {
        assert.throws(() => open(t, `file:${file}?${parameter}`, { mode: 'onewrite' }), new RegExp(parameter));
      }
      assert.throws(() => open(t, `file:${file}?journal_mode=delete`), /unknown mode 'delete'/);
      assert.equal(onewrite.check(open(t, `file:${file}2?journal_mode=DIRECT`)).mode, 'direct');
    });

    it('refuses wrong words and makes no file', (t) => {
      const { directory, file } = place(t);
      assert.throws(() => open(t, file, { mode: 'wladio' }), /unknown mode 'wladio'.*onewrite, waldio, swal, direct/);
      for (const [name, meant] of [['readOnly', 'readonly'], ['journal_mode', 'mode'], ['sync', 'synchronous']]) {
        assert.throws(() => open(t, file, { [name]: true }), new RegExp(`unknown option '${name}'.*takes ${meant}`));
      }
      for (const synchronous of ['FUL', 2, null]) {
        assert.throws(() => open(t, file, { synchronous }), /unknown synchronous .*OFF, NORMAL, FULL, EXTRA/);
      }
      for (const wrong of ['sqlite', undefined, {}, () => {}, class {}]) {
        assert.throws(() => open(t, file, { driver: wrong }), /driver is the class that opens databases/);
      }
      for (const timeout of [-1, NaN, '5000']) assert.throws(() => open(t, file, { timeout }), /timeout is a number of milliseconds/);
      for (const memory of [':memory:', '', 'file::memory:', 'file:x?mode=memory&cache=shared']) {
        assert.throws(() => open(t, memory), /in memory/);
      }
      for (const wrong of [3, undefined, new URL('http://localhost/app.db')]) assert.throws(() => open(t, wrong), /a string or a URL of a file/);
      assert.deepEqual(fs.readdirSync(directory), []);
    });

    // libsql tells a number alone.
    if (name !== 'libsql') it('throws OneWriteError with the reason where the log is missing', (t) => {
      const { directory, file } = place(t);
      commitARow(open(t, file));
      const copy = path.join(directory, 'copy.db');
      fs.copyFileSync(file, copy);
      assert.throws(() => open(t, copy), (error) => {
        assert.equal(error.name, 'OneWriteError');
        assert.ok(error.message.startsWith(`${copy}-onewrite: the database's newest transactions are in this log`), error.message);
        assert.ok(error.cause && !(error.cause instanceof onewrite.OneWriteError));
        return true;
      });
    });

    it('names the drivers that work where one cannot load', (t) => {
      const { file } = place(t);
      const methods = { prepare() {}, exec() {}, close() {} };
      const None = class {};
      Object.assign(None.prototype, methods);
      assert.throws(() => open(t, file, { driver: None }), { name: 'OneWriteError', message: /None.*loads no extensions: use better-sqlite3, node:sqlite.*libsql/ });
      const Forbidden = class {};
      const loadExtension = () => { throw new Error('not authorized'); };
      Object.assign(Forbidden.prototype, methods, { loadExtension });
      assert.throws(() => open(t, file, { driver: Forbidden }), { name: 'OneWriteError', message: /not authorized: use better-sqlite3/ });
      const NoClose = class { prepare() {} };
      assert.throws(() => open(t, file, { driver: NoClose }), /driver is the class that opens databases/);
    });

    it('names a place that no database can have', (t) => {
      const { directory } = place(t);
      const missing = path.join(directory, 'no such');
      const isReason = (reason) => (error) => error.name === 'OneWriteError' && error.message.endsWith(reason);
      assert.throws(() => open(t, path.join(missing, 'app.db')), isReason(`: there is no directory ${missing}: make it first`));
      assert.throws(() => open(t, directory), isReason(`: ${directory} is a directory: name a file in it`));
    });

    it('opens for reading, also alone', (t) => {
      const { file } = place(t);
      const db = open(t, file);
      commitARow(db);
      for (const isAlone of [false, true]) {
        if (isAlone) db.close();
        const reader = open(t, file, { readonly: true });
        assert.equal(one(reader, 'SELECT count(*) FROM t'), 1);
        assert.throws(() => reader.exec('INSERT INTO t VALUES(2)'), /readonly/);
        reader.close();
      }
      assert.throws(() => open(t, file, { readonly: true, mode: 'waldio' }), /cannot change into waldio mode: the database is read-only/);
    });

    it('names a stock connection that is in the way, and waits for it', async (t) => {
      const { file } = place(t);
      const other = await stock(t, file, 'CREATE TABLE t(x)', 'PRAGMA journal_mode=WAL', 'SELECT count(*) FROM t');
      assert.throws(() => open(t, file, { timeout: 100 }), (error) => {
        assert.ok(error instanceof onewrite.OneWriteError);
        assert.match(error.message, /cannot change into onewrite mode.*another connection.*close it first/);
        return true;
      });
      await collected();
      const code = "console.log('begin'); onewrite.check(onewrite.open(file, { driver: Driver })); console.log('in')";
      const waiting = start(t, code, [file, name]);
      assert.equal(await waiting.line(), 'begin');
      assert.equal(await other.close(), 0);
      assert.equal(await waiting.line(), 'in');
    });

    // Connections of libsql stay open after `close`, and were once in each other's way until `timeout`.
    if (name !== 'libsql') it('lets processes all open first', async (t) => {
      const { file } = place(t);
      const code = `
        process.stdin.once('data', () => {
          const db = onewrite.open(file, { driver: Driver, timeout: 30000 });
          db.exec('CREATE TABLE IF NOT EXISTS t(x)');
          db.exec('INSERT INTO t VALUES(1)');
          onewrite.check(db);
          process.exit(0);
        });
        console.log('ready');
      `;
      const all = [1, 2, 3, 4].map(() => start(t, code, [file, name]));
      for (const each of all) assert.equal(await each.line(), 'ready');
      for (const each of all) each.child.stdin.write('\n');
      assert.deepEqual(await Promise.all(all.map((each) => each.ended)), [0, 0, 0, 0]);
      assert.equal(one(open(t, file), 'SELECT count(*) FROM t'), 4);
    });

    it('loses no commit to a kill, and stock SQLite is refused after it', async (t) => {
      const { file } = place(t);
      const code = `
        const db = onewrite.open(file, { driver });
        db.exec('CREATE TABLE t(x)');
        const insert = db.prepare('INSERT INTO t VALUES(?)');
        for (let row = 0; ; row++) { insert.run(row); require('fs').writeSync(1, row + '\\n'); }
      `;
      const writer = start(t, code, [file, name]);
      let acknowledged;
      for (let line = 0; line < 50; line++) acknowledged = Number(await writer.line());
      writer.child.kill('SIGKILL');
      assert.equal(await writer.ended, 'SIGKILL');
      const refused = printed("console.log(said(() => one(new Driver(file), 'SELECT count(*) FROM t')))", [file, 'libsql']);
      assert.match(refused.join(), /file is not a database/);
      const read = `
        const db = onewrite.open(file, { driver });
        console.log(one(db, 'SELECT count(*) FROM t'), one(db, 'SELECT max(x) FROM t'), one(db, 'PRAGMA integrity_check'));
      `;
      const [rows, last, ok] = printed(read, [file, name])[0].split(' ');
      assert.ok(Number(last) >= acknowledged, `${last} of ${acknowledged}`);
      assert.equal(Number(rows), Number(last) + 1);
      assert.equal(ok, 'ok');
    });
  });
}
