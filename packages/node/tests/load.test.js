// load and getLoadablePath.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { describe, it } = require('node:test');
const onewrite = require('..');
const { DRIVERS, SYNC_DRIVERS, available, place, printed } = require('./support');

const LOADER = "const loader = new Driver(':memory:', { allowExtension: true });";
const ONLY_LINUX = 'onewrite runs on Linux only: databases are in stock WAL here';

for (const name of available(SYNC_DRIVERS)) {
  describe(`load with ${name}`, () => {
    it('makes onewrite the VFS of later databases, once and again', (t) => {
      const code = `
        ${LOADER}
        console.log(onewrite.load(loader), onewrite.load(loader));
        loader.close();
        console.log(process.env.ONEWRITE_UPGRADE_WAL, process.env.ONEWRITE_MAKE_DEFAULT);
        onewrite.open(file + '2', { driver: Driver }).close();
        const db = new Driver(file);
        console.log(one(db, 'PRAGMA journal_mode=onewrite'), onewrite.check(db, { synchronous: 'NORMAL' }).mode);
      `;
      assert.deepEqual(printed(code, [place(t).file, name]), ['true true', 'onewrite 1', 'onewrite onewrite']);
      const left = printed(code, [place(t).file, name], { ONEWRITE_UPGRADE_WAL: '1' });
      assert.equal(left[1], '1 1');
    });

    it('names a library that is not there, is none, or is damaged', (t) => {
      const { directory, file } = place(t);
      const code = `
        ${LOADER}
        for (const use of [() => onewrite.getLoadablePath(), () => onewrite.load(loader), () => onewrite.open(file, { driver: Driver })])
          console.log(said(use));
        console.log(require('fs').existsSync(file));
      `;
      const missing = 'OneWriteError: ONEWRITE_EXTENSION_LIBRARY: there is no file /nowhere/libonewrite.so';
      const lines = printed(code, [file, name], { ONEWRITE_EXTENSION_LIBRARY: '/nowhere/libonewrite.so' });
      assert.deepEqual(lines, [missing, missing, missing, 'false']);
      const library = path.join(directory, 'libonewrite.so');
      const whole = fs.readFileSync(onewrite.getLoadablePath());
      const other = Buffer.from(whole);
      other[18] = whole[18] === 183 ? 62 : 183; // e_machine of elf(5)
      const damages = {
        'it is no shared library': 'no library',
        'it is cut short': whole.subarray(0, -1),
        // The tests run with glibc.
        'it is for musl, and this program uses glibc': Buffer.from(whole.toString('latin1').replaceAll('libc.so.6\0', 'libc.so\0\0\0'), 'latin1'),
        [`it is for ${whole[18] === 183 ? 'x86_64' : 'aarch64'}, 64 bits`]: other,
      };
      for (const [reason, contents] of Object.entries(damages)) {
        fs.writeFileSync(library, contents);
        const [found, ...refusals] = printed(code, [file, name], { ONEWRITE_EXTENSION_LIBRARY: library });
        assert.equal(found, 'nothing');
        for (const line of refusals.slice(0, 2)) assert.ok(line.startsWith(`OneWriteError: cannot load ${library}: ${reason}`), line);
        assert.equal(refusals[2], 'false');
      }
    });

    it('warns once on other systems, and opens in stock WAL', (t) => {
      const code = `
        const warnings = [];
        process.on('warning', (warning) => warnings.push(warning.code + ' ' + warning.message));
        ${LOADER}
        Object.defineProperty(process, 'platform', { value: system });
        console.log(onewrite.load(loader), onewrite.load(loader));
        const db = onewrite.open(file, { driver: Driver, mode: 'waldio' });
        console.log(one(db, 'PRAGMA journal_mode'), one(db, 'PRAGMA synchronous'));
        console.log(said(() => onewrite.check(db)));
        setImmediate(() => console.log(warnings.filter((each) => each.startsWith('ONEWRITE')).join('+')));
      `;
      for (const system of ['darwin', 'win32']) {
        const lines = printed(`const system = '${system}';${code}`, [place(t).file, name]);
        assert.deepEqual(lines, [
          'false false',
          'wal 2',
          'OneWriteError: the connection does not use onewrite: onewrite runs on Linux only',
          `ONEWRITE_ONLY_LINUX ${ONLY_LINUX}`,
        ]);
      }
    });

    it('in the main thread serves worker threads, and a worker alone tells why it cannot', (t) => {
      const { file } = place(t);
      const code = `
        const { Worker } = require('worker_threads');
        if (isFirst) { ${LOADER} onewrite.load(loader); }
        const text = \`
          const { workerData: { home, file, driver }, parentPort } = require('worker_threads');
          const onewrite = require(home);
          const Driver = driver === 'node:sqlite' ? require(driver).DatabaseSync : require(driver);
          onewrite.load(new Driver(':memory:', { allowExtension: true }));
          const db = new Driver(file);
          db.prepare('PRAGMA journal_mode=onewrite').get();
          db.exec('PRAGMA synchronous=FULL');
          try { parentPort.postMessage(onewrite.check(db).mode); } catch (error) { parentPort.postMessage(error.message); }
        \`;
        new Worker(text, { eval: true, workerData: { home: ${JSON.stringify(path.dirname(__dirname))}, file, driver } })
          .on('message', (said) => console.log(said))
          .on('error', (error) => { console.log(error.message); process.exitCode = 1; });
      `;
      assert.deepEqual(printed(`const isFirst = true;${code}`, [file, name]), ['onewrite']);
      assert.match(printed(`const isFirst = false;${code}`, [`${file}2`, name]).join(), /In a worker thread, load must be called in the main thread first/);
    });
  });
}

describe('load', () => {
  it('refuses what is no handle', () => {
    for (const wrong of [undefined, null, 'app.db', {}]) assert.throws(() => onewrite.load(wrong), /this is not a handle/);
  });

  it('has an error for a processor or a system without a package', () => {
    const code = `
      Object.defineProperty(process, 'arch', { value: 'ia32' });
      console.log(said(() => onewrite.getLoadablePath()));
      Object.defineProperty(process, 'arch', { value: 'arm' });
      console.log(said(() => onewrite.getLoadablePath()));
      process.report.getReport = () => ({ header: {} });
      console.log(said(() => onewrite.getLoadablePath()));
      Object.defineProperty(process, 'arch', { value: 'x64' });
      console.log(said(() => onewrite.getLoadablePath()));
    `;
    const lines = printed(code, [], { ONEWRITE_EXTENSION_LIBRARY: undefined });
    const way = 'Name the library in ONEWRITE_EXTENSION_LIBRARY';
    assert.match(lines[0], new RegExp(`no package for the processor ia32 with glibc. ${way}`));
    assert.match(lines[1], new RegExp(`@onewrite/linux-arm-gnueabihf is not installed: .*npm install onewrite-linux-arm-gnueabihf-[0-9.]+\\.tgz.*--include=optional\\). ${way}`));
    assert.match(lines[2], new RegExp(`@onewrite/linux-arm-musleabihf is not installed: .*--include=optional\\). ${way}`));
    assert.match(lines[3], new RegExp(`@onewrite/linux-x64-musl is not installed: .*npm install onewrite-linux-x64-musl-[0-9.]+\\.tgz.*--include=optional\\). ${way}`));
  });
});

function nodeSqlite() {
  it('says how it may load', () => {
    const lines = printed("console.log(said(() => onewrite.load(new Driver(':memory:'))))", ['-', 'node:sqlite']);
    assert.match(lines[0], /cannot load .*extension loading is not allowed: open the handle with \{ allowExtension: true \}/);
  });
}

function nodeSqlite3() {
  const PROMISES = `
    const said = (promise) => promise.then((status) => status.mode ?? status, (error) => error.message);
    const opened = (name, flags = Driver.OPEN_READWRITE | Driver.OPEN_CREATE) => new Promise((resolve, reject) => {
      const db = new Driver.Database(name, flags, (error) => (error ? reject(error) : resolve(db)));
    });
    const get = (db, sql) => new Promise((resolve, reject) => db.get(sql, (error, row) => (error ? reject(error) : resolve(row))));
  `;
  const run = (code, given, variables) => printed(`{${PROMISES} (async () => {${code}})();}`, given, variables);

  it('loads, opens by URI and is checked', (t) => {
    const code = `
      const loader = await opened(':memory:');
      console.log(await said(onewrite.check(loader)));
      console.log(await said(onewrite.load(loader)), await said(Promise.all([onewrite.load(loader), onewrite.load(loader)])));
      const flags = Driver.OPEN_READWRITE | Driver.OPEN_CREATE | Driver.OPEN_URI;
      const db = await opened(onewrite.uri(file), flags);
      await get(db, 'PRAGMA journal_mode=onewrite');
      console.log(await said(onewrite.check(db)));
      await get(db, 'PRAGMA synchronous=NORMAL');
      console.log(await said(onewrite.check(db)));
      console.log(await said(onewrite.check(await opened(file + '2'))));
    `;
    const lines = run(code, [place(t).file, 'sqlite3']);
    assert.match(lines[0], /does not use onewrite/);
    const level = 'synchronous is NORMAL, not FULL: run PRAGMA synchronous=FULL on each connection';
    assert.deepEqual(lines.slice(1, 4), ['true [ true, true ]', 'onewrite', level]);
    assert.equal(lines[4], 'the database is in delete mode, not in one of onewrite: run PRAGMA journal_mode=onewrite on it');
  });

  it('rejects with the reason', (t) => {
    const code = `
      const loader = await opened(':memory:');
      console.log(await said((async () => onewrite.load(loader))()));
    `;
    const library = path.join(place(t).directory, 'libonewrite.so');
    fs.writeFileSync(library, 'no library');
    assert.match(run(code, ['-', 'sqlite3'], { ONEWRITE_EXTENSION_LIBRARY: library })[0], new RegExp(`cannot load ${library}: .+`));
    const missing = run(code, ['-', 'sqlite3'], { ONEWRITE_EXTENSION_LIBRARY: '/nowhere/x.so' });
    assert.equal(missing[0], 'ONEWRITE_EXTENSION_LIBRARY: there is no file /nowhere/x.so');
  });

  it('loses no commit to a kill', (t) => {
    const write = `
      await onewrite.load(await opened(':memory:'));
      const db = await opened(file);
      await get(db, 'PRAGMA journal_mode=onewrite');
      await get(db, 'PRAGMA synchronous=FULL');
      await onewrite.check(db);
      await get(db, 'CREATE TABLE t(x)');
      for (let row = 0; row < 50; row++) await get(db, 'INSERT INTO t VALUES(' + row + ')');
      const { spawnSync } = require('child_process');
      spawnSync('kill', ['-9', String(process.pid)]);
    `;
    const { file } = place(t);
    assert.throws(() => run(write, [file, 'sqlite3']), /SIGKILL/);
    const read = `
      await onewrite.load(await opened(':memory:'));
      const db = await opened(file);
      console.log((await get(db, 'SELECT count(*) AS n FROM t')).n, await said(onewrite.check(db)));
    `;
    assert.deepEqual(run(read, [file, 'sqlite3']), ['50 onewrite']);
  });

  it('is no driver for open', () => {
    const code = "for (const each of [Driver, Driver.Database]) console.log(said(() => onewrite.open('x', { driver: each })))";
    for (const line of printed(code, ['-', 'sqlite3'])) assert.match(line, /driver is the class that opens databases/);
  });
}

if (available(['node:sqlite']).length > 0) describe('node:sqlite', nodeSqlite);
if (available(['sqlite3']).length > 0) describe('node-sqlite3', nodeSqlite3);

assert.ok(available(DRIVERS).length > 0, 'this Node runs none of the drivers');
