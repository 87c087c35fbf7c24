// A worker of `onewrite-lab soak` on the SQLite of Node's module node:sqlite, or of better-sqlite3.
//
//   node worker.js --probe      prints the version of SQLite
//   node worker.js JOB          JOB is the JSON document that soak/job.rs describes
//
// worker.rs says what a worker does.
'use strict';

const fs = require('node:fs');

const BUSY = 5;
const LOCKED = 6;

// Opens a file with whichever driver this Node has.
function open(file) {
  let DatabaseSync;
  try {
    ({ DatabaseSync } = require('node:sqlite'));
  } catch {
    const Database = require('better-sqlite3');
    return new Database(file);
  }
  return new DatabaseSync(file, { allowExtension: true });
}

const values = (row) => (row === undefined ? undefined : Object.values(row)[0]);

if (process.argv[2] === '--probe') {
  console.log(values(open(':memory:').prepare('SELECT sqlite_version()').get()));
  process.exit(0);
}

const job = JSON.parse(process.argv[2]);
const history = fs.openSync(job.history, 'a', 0o600);
const notes = fs.openSync(job.notes, 'a', 0o600);
let db = null;
let seq = 0;

// xorshift32, so that a seed repeats the choices.
let state = job.seed % 4294967291 || 1;
function random() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 4294967296;
}
const below = (limit) => Math.floor(random() * limit);
const choose = (list) => list[below(list.length)];
const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC
const sleeper = new Int32Array(new SharedArrayBuffer(4));
const sleep = (ms) => Atomics.wait(sleeper, 0, 0, ms);

function record(kind, operations) {
  const text = operations.map(([what, key, value]) => {
    const shown = Array.isArray(value) ? `[${value.join(' ')}]` : value ?? 'nil';
    return `[:${what} ${key} ${shown}]`;
  });
  const line = `{:type :${kind}, :process ${job.process}, :f :txn, :value [${text.join(' ')}], :time ${now()}, :seq ${seq}}\n`;
  fs.writeSync(history, line);
}

const codeOf = (error) => error.errcode ?? (String(error.code).startsWith('SQLITE_BUSY') ? BUSY : 0);
const isBusy = (error) => [BUSY, LOCKED].includes(codeOf(error) & 0xff);
function note(kind, error) {
  fs.writeSync(notes, `${now()} ${kind} ${codeOf(error)} ${String(error.message).replace(/\n/g, ' ')}\n`);
}

const one = (sql, ...parameters) => values(db.prepare(sql).get(...parameters));
const run = (sql, ...parameters) => db.prepare(sql).run(...parameters);

function connect() {
  const opened = open(`file:${job.database}?vfs=onewrite`);
  try {
    opened.exec(`PRAGMA busy_timeout=${job.busy_ms}`);
    const mode = values(opened.prepare(`PRAGMA journal_mode=${job.mode}`).get());
    if (mode !== job.mode) throw new Error(`journal_mode is ${mode}`);
    opened.exec('PRAGMA synchronous=FULL');
    opened.exec(`PRAGMA wal_autocheckpoint=${choose([50, 200, 1000])}`);
    opened.exec('PRAGMA cache_size=50');
  } catch (error) {
    opened.close();
    throw error;
  }
  return opened;
}

function activeKey() {
  const epoch = now() / (BigInt(job.epoch_s) * 1000000000n);
  return Number(epoch) * 100 + below(job.keys);
}

function plan() {
  const isRead = random() < 0.35;
  const operations = [];
  const length = 1 + below(4);
  for (let n = 0; n < length; n++) {
    if (isRead || random() < 0.4) operations.push(['r', activeKey(), null]);
    else operations.push(['append', activeKey(), job.process * 1000000 + seq * 10 + n]);
  }
  return operations;
}

function apply(operations) {
  return operations.map(([what, key, value]) => {
    if (what === 'append') {
      run("INSERT INTO list VALUES(?, ?) ON CONFLICT(k) DO UPDATE SET v = v || ' ' || excluded.v", key, String(value));
      return [what, key, value];
    }
    const text = one('SELECT v FROM list WHERE k = ?', key);
    return [what, key, text === undefined ? [] : String(text).split(' ').map(Number)];
  });
}

function transfer() {
  const [debit, credit, amount] = [below(job.accounts), below(job.accounts), below(50)];
  run('UPDATE account SET balance = balance - ? WHERE id = ?', amount, debit);
  run('UPDATE account SET balance = balance + ? WHERE id = ?', amount, credit);
  if (random() < 0.2) {
    db.exec('SAVEPOINT s');
    db.exec('UPDATE ledger SET amount = amount + 1 WHERE id > (SELECT max(id) FROM ledger) - 200');
    db.exec('ROLLBACK TO s');
    db.exec('RELEASE s');
  }
  const text = 'n'.repeat(10 + below(290));
  run('INSERT INTO ledger(process, seq, debit, credit, amount, note) VALUES(?, ?, ?, ?, ?, ?)',
    job.process, seq, debit, credit, amount, text);
}

function read(operations) {
  db.exec('BEGIN');
  let done = apply(operations);
  if (random() < job.long_readers) {
    sleep(500 + below(3500));
    done = done.concat(apply(operations));
  }
  const total = one('SELECT sum(balance) FROM account');
  if (total !== job.total) note('wrong', new Error(`a snapshot has the sum ${total}`));
  db.exec('COMMIT');
  return ['ok', done];
}

function write(operations) {
  db.exec(choose(['BEGIN IMMEDIATE', 'BEGIN IMMEDIATE', 'BEGIN']));
  const done = apply(operations);
  transfer();
  if (random() < 0.04) {
    db.exec('ROLLBACK');
    return ['fail', operations];
  }
  try {
    db.exec('COMMIT');
  } catch (error) {
    note('commit', error);
    giveUp();
    return [isBusy(error) ? 'fail' : 'info', operations];
  }
  return ['ok', done];
}

// Ends the transaction. A connection that cannot is closed.
function giveUp() {
  try {
    if (db.isTransaction ?? db.inTransaction) db.exec('ROLLBACK');
  } catch (error) {
    note('rollback', error);
    db.close();
    db = null;
  }
}

function step() {
  seq += 1;
  const operations = plan();
  record('invoke', operations);
  let [kind, done] = ['fail', operations];
  try {
    [kind, done] = operations.every(([what]) => what === 'r') ? read(operations) : write(operations);
  } catch (error) {
    note('statement', error);
    giveUp();
  }
  record(kind, done);
}

// The VFS stays registered after the connection that loaded it.
const loader = open(':memory:');
(loader.enableLoadExtension ?? (() => {})).call(loader, true);
loader.loadExtension(job.library);
for (;;) {
  sleep(random() * 2000 / job.rate);
  try {
    db ??= connect();
    if (random() < 0.01) db.exec(choose(job.upkeep));
  } catch (error) {
    note('open', error);
    continue;
  }
  step();
}
