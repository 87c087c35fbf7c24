// Helpers of the tests. The drivers come from NODE_PATH, the extension from ONEWRITE_EXTENSION_LIBRARY.
'use strict';

const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const PACKAGE = path.dirname(__dirname);
const ROOT = path.join(PACKAGE, '../..');
const LIMIT_MS = 300_000;

/** The drivers for `open`, and node-sqlite3. */
const SYNC_DRIVERS = ['better-sqlite3', 'node:sqlite', 'libsql'];
const DRIVERS = [...SYNC_DRIVERS, 'sqlite3'];

const manifestOf = (name) => JSON.parse(fs.readFileSync(path.join(process.env.NODE_PATH, name, 'package.json')));

/** Whether this Node runs a driver. better-sqlite3 13 crashes where Node-API is older than 10. */
function runs(name) {
  if (name === 'node:sqlite') return canRequire(name);
  if (name === 'better-sqlite3' && Number(process.versions.napi) < 10) return false;
  return isNode(manifestOf(name).engines?.node.replace('>=', '') ?? '0');
}

/** Whether this Node is of that version or later. */
function isNode(version) {
  const [wanted, found] = [version, process.versions.node].map((each) => each.split('.').map(Number));
  const place = wanted.findIndex((part, index) => part !== found[index]);
  return place < 0 || found[place] > wanted[place];
}

/** node:sqlite takes URIs since Node 22.15. */
const takesUris = (name) => name === 'libsql' || (name === 'node:sqlite' && isNode('22.15.0'));

function canRequire(name) {
  try {
    return Boolean(require(name));
  } catch {
    return false;
  }
}

const available = (names) => names.filter(runs);
const driverOf = (name) => (name === 'node:sqlite' ? require(name).DatabaseSync : require(name));

/** A directory of a test, with the path of a database in it. */
function place(t) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'onewrite-'));
  t.after(() => fs.rmSync(directory, { recursive: true, force: true }));
  return { directory, file: path.join(directory, 'app.db') };
}

/** Closes a handle after the test, which may have closed it. */
function closing(t, db) {
  t.after(() => {
    try {
      db.close();
    } catch {
      // It is closed.
    }
  });
  return db;
}

/** libsql closes a database only when the garbage is collected. */
async function collected() {
  for (let round = 0; round < 2; round++) {
    global.gc();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const one = (db, sql) => Object.values(db.prepare(sql).get())[0];

function commitARow(db) {
  db.exec('CREATE TABLE IF NOT EXISTS t(x)');
  db.exec('INSERT INTO t VALUES(1)');
}

/** This environment without what `load` or the user has set. */
function environment(variables = {}) {
  const own = ['ONEWRITE_UPGRADE_WAL', 'ONEWRITE_JOURNAL_MODE', 'ONEWRITE_MAKE_DEFAULT', 'NODE_TEST_CONTEXT'];
  const kept = Object.entries(process.env).filter(([name]) => !own.includes(name));
  const all = { ...Object.fromEntries(kept), ...variables };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

const PRELUDE = `
  process.removeAllListeners('warning');
  const onewrite = require(${JSON.stringify(PACKAGE)});
  const [, file, driver] = process.argv;
  const Driver = driver && (driver === 'node:sqlite' ? require(driver).DatabaseSync : require(driver));
  const one = (db, sql) => Object.values(db.prepare(sql).get())[0];
  const said = (use) => { try { use(); return 'nothing'; } catch (error) { return error.name + ': ' + error.message; } };
`;

const words = (code, given) => ['-e', `${PRELUDE}\n${code}`, '--', ...given];

/** The lines that a Node with this code prints. It must succeed. */
function printed(code, given = [], variables = {}, options = {}) {
  const done = spawnSync(process.execPath, words(code, given), {
    encoding: 'utf8', env: environment(variables), timeout: LIMIT_MS, ...options,
  });
  assert.equal(done.status, 0, `${done.signal} ${done.stdout}\n${done.stderr}`);
  return done.stdout.trim().split('\n');
}

/** A Node with this code that runs next to the test. */
function start(t, code, given = [], variables = {}) {
  const child = spawn(process.execPath, words(code, given), { env: environment(variables), stdio: ['pipe', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  const lines = require('node:readline').createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const ended = new Promise((resolve) => child.on('close', (code, signal) => resolve(signal ?? code)));
  return { child, ended, line: async () => (await lines.next()).value };
}

/** A process with SQLite alone, which has run these statements and keeps the database open. */
async function stock(t, file, ...statements) {
  const code = `
    const db = new Driver(file);
    for (const sql of ${JSON.stringify(statements)}) sql.startsWith('SELECT') ? db.prepare(sql).get() : db.exec(sql);
    console.log('ready');
    process.stdin.once('data', () => { db.close(); process.exit(0); });
  `;
  const running = start(t, code, [file, 'libsql']);
  assert.equal(await running.line(), 'ready');
  return { ...running, close: () => (running.child.stdin.write('\n'), running.ended) };
}

module.exports = {
  PACKAGE, ROOT, SYNC_DRIVERS, DRIVERS,
  available, closing, collected, commitARow, driverOf, environment, isNode, one, place, printed, start, stock, takesUris,
};

if (require.main === module) {
  const version = (name) => (name === 'node:sqlite' ? name : `${name} ${manifestOf(name).version}`);
  console.log(available(DRIVERS).map(version).join(', '));
}
