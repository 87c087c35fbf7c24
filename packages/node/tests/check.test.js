// check, with each driver that this Node runs.
'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const { describe, it } = require('node:test');
const onewrite = require('..');
const { SYNC_DRIVERS, available, closing, collected, commitARow, driverOf, isNode, one, place, printed, stock } = require('./support');

const fails = (use, pattern) =>
  assert.throws(use, (error) => {
    assert.ok(error instanceof onewrite.OneWriteError, error);
    assert.match(error.message, pattern);
    return true;
  });

for (const name of available(SYNC_DRIVERS)) {
  const driver = driverOf(name);
  const open = (t, file, options = {}) => closing(t, onewrite.open(file, { driver, ...options }));

  describe(`check with ${name}`, () => {
    it('says that a connection has another VFS', (t) => {
      const code = `
        const db = new Driver(file, { allowExtension: true });
        console.log(one(db, 'PRAGMA journal_mode=onewrite'));
        console.log(said(() => onewrite.check(db)));
        console.log(onewrite.load(db), said(() => onewrite.check(db)));
        console.log(said(() => onewrite.check(new Driver(':memory:'))));
      `;
      const [answer, ...refusals] = printed(code, [place(t).file, name]);
      assert.equal(answer, 'delete');
      assert.equal(refusals.length, 3);
      for (const line of refusals) {
        assert.match(line, /OneWriteError: the connection does not use onewrite: .*another VFS.*onewrite.load before you open/);
      }
    });

    it('says that a mode is another', (t) => {
      const { file } = place(t);
      const db = open(t, file, { mode: 'waldio' });
      fails(() => onewrite.check(db, { mode: 'onewrite' }), /is in waldio mode, not in onewrite/);
      assert.equal(onewrite.check(db).mode, 'waldio');
      assert.equal(onewrite.check(db, { mode: 'waldio' }).mode, 'waldio');
      assert.equal(one(db, 'PRAGMA journal_mode=delete'), 'delete');
      fails(() => onewrite.check(db), /is in delete mode, not in one of onewrite/);
    });

    it('says that the level is lower', (t) => {
      const db = open(t, place(t).file, { synchronous: 'NORMAL' });
      fails(() => onewrite.check(db), /synchronous is NORMAL, not FULL/);
      assert.equal(onewrite.check(db, { synchronous: 'NORMAL' }).mode, 'onewrite');
    });

    // better-sqlite3 runs at NORMAL in WAL, where others run at FULL.
    it('takes the level to which the environment raises a program that names none', (t) => {
      const code = `
        onewrite.load(new Driver(':memory:', { allowExtension: true }));
        const db = new Driver(file);
        db.exec('PRAGMA journal_mode=WAL');
        db.exec('CREATE TABLE t(x)');
        console.log(said(() => onewrite.check(db)));
        const flushed = () => {
          const { flushes, write_through } = JSON.parse(one(db, 'PRAGMA onewrite_status'));
          return flushes + write_through;
        };
        const before = flushed();
        for (let row = 0; row < 3; row++) db.exec('INSERT INTO t VALUES(1)');
        const { mode, synchronous } = JSON.parse(one(db, 'PRAGMA onewrite_status'));
        console.log(mode, synchronous, flushed() - before);
      `;
      const { directory, file } = place(t);
      assert.deepEqual(printed(code, [file, name], { ONEWRITE_SYNCHRONOUS: 'full' }), ['nothing', 'onewrite full 3']);
      const [said, level] = printed(code, [path.join(directory, 'without'), name]);
      const isAtNormal = name === 'better-sqlite3';
      assert.match(said, isAtNormal ? /synchronous is NORMAL, not FULL/ : /nothing/);
      assert.equal(level, isAtNormal ? 'onewrite normal 0' : 'onewrite full 3');
    });

    it('finds each commit durable where a pragma holds the level that a program lowers', (t) => {
      const db = open(t, place(t).file);
      commitARow(db);
      const durable = () => {
        const counts = [];
        for (let row = 0; row <= 5; row++) {
          db.exec('INSERT INTO t VALUES(1)');
          const { flushes, write_through } = onewrite.check(db, { synchronous: 'OFF' });
          counts.push(flushes + write_through);
        }
        return counts[5] - counts[0];
      };
      db.exec('PRAGMA synchronous=NORMAL');
      assert.equal(durable(), 0);
      db.exec('PRAGMA onewrite_synchronous=full');
      // Drivers make names of its columns, and it has none.
      db.prepare('PRAGMA synchronous=NORMAL').run();
      assert.equal(onewrite.check(db).synchronous, 'full');
      assert.ok(durable() >= 5);
    });

    it('says that a setting loses commits', (t) => {
      const { directory, file } = place(t);
      const db = open(t, file);
      one(db, 'PRAGMA onewrite_sync=normal');
      fails(() => onewrite.check(db), /onewrite_sync=normal.*power cut/);
      const groups = open(t, path.join(directory, 'groups'), { mode: 'waldio' });
      one(groups, "PRAGMA onewrite_group_synch='4,2'");
      fails(() => onewrite.check(groups, { mode: 'waldio' }), /onewrite_group_synch=4,2.*power cut/);
    });

    it('refuses wrong words', (t) => {
      const db = open(t, place(t).file);
      assert.throws(() => onewrite.check(db, { mode: 'wal' }), /unknown mode 'wal'/);
      assert.throws(() => onewrite.check(db, { synchronous: 'on' }), /unknown synchronous 'on'/);
      for (const wrong of [undefined, null, 'app.db', {}]) assert.throws(() => onewrite.check(wrong), /this is not a handle/);
    });

    it('finds the mode kept where a program asks for WAL', (t) => {
      const db = open(t, place(t).file);
      assert.equal(one(db, 'PRAGMA journal_mode=WAL'), 'wal');
      commitARow(db);
      assert.equal(onewrite.check(db).mode, 'onewrite');
    });

    it('says what the environment makes of WAL', (t) => {
      const code = `
        const db = onewrite.open(file, { driver: Driver });
        console.log(one(db, 'PRAGMA journal_mode=WAL'));
        console.log(said(() => onewrite.check(db)));
      `;
      const lines = printed(code, [place(t).file, name], { ONEWRITE_UPGRADE_WAL: '0' });
      assert.deepEqual(lines, [
        'wal',
        'OneWriteError: the database is in wal mode, not in one of onewrite: run PRAGMA journal_mode=onewrite on it',
      ]);
    });

    it('has the reason of a mode that is kept out', async (t) => {
      const { file } = place(t);
      const db = open(t, file);
      commitARow(db);
      db.close();
      await collected();
      const idle = await stock(t, file, 'SELECT count(*) FROM t');
      const code = `
        const loader = new Driver(':memory:', { allowExtension: true });
        onewrite.load(loader);
        const db = new Driver(file);
        one(db, 'SELECT count(*) FROM t');
        console.log(said(() => onewrite.check(db)));
      `;
      assert.match(printed(code, [file, name]).join(), /is not in onewrite mode: .*stock SQLite/);
      assert.equal(await idle.close(), 0);
    });

    if (name === 'node:sqlite' && !isNode('24.0.0')) return;

    it('takes handles that make big integers', (t) => {
      const db = open(t, place(t).file, name === 'node:sqlite' ? { readBigInts: true, returnArrays: true } : {});
      if (name !== 'node:sqlite') db.defaultSafeIntegers(true);
      assert.equal(typeof one(db, 'PRAGMA synchronous'), 'bigint');
      assert.equal(onewrite.check(db).mode, 'onewrite');
    });
  });
}

function traps() {
  it('has NORMAL where only the mode is set', (t) => {
    const code = `
      const loader = new Driver(':memory:');
      onewrite.load(loader);
      const db = new Driver(file);
      console.log(db.pragma('journal_mode=onewrite', { simple: true }));
      console.log(said(() => onewrite.check(db)));
    `;
    const lines = printed(code, [place(t).file, 'better-sqlite3']);
    assert.deepEqual(lines, [
      'onewrite',
      'OneWriteError: synchronous is NORMAL, not FULL: run PRAGMA synchronous=FULL on each connection',
    ]);
  });

  it('makes a file that is named by the URI, with and without onewrite', (t) => {
    const { directory } = place(t);
    for (const first of ['', "onewrite.load(new Driver(':memory:'));"]) {
      const code = `
        ${first}
        const db = new Driver('file:app.db?vfs=onewrite');
        db.pragma('journal_mode=onewrite');
        console.log(said(() => onewrite.check(db)));
      `;
      const lines = printed(code, ['-', 'better-sqlite3'], {}, { cwd: directory });
      assert.match(lines[0], /is a file that is named file:app.db\?vfs=onewrite, because .*path alone/);
    }
  });
}

if (available(['better-sqlite3']).length > 0) describe('the traps of better-sqlite3', traps);
