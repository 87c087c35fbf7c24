// The differences between drivers: how a handle answers SQL, and how it loads an extension.
'use strict';

const DRIVERS = 'a handle of better-sqlite3, node:sqlite, node-sqlite3 or libsql';

/** Whether its methods take callbacks, as those of node-sqlite3 do. Throws for what is no handle. */
function isAsync(db) {
  const has = (method) => db !== null && typeof db === 'object' && typeof db[method] === 'function';
  if (has('parallelize') && has('get') && has('loadExtension')) return true;
  if (has('prepare') && has('exec')) return false;
  throw new TypeError(`this is not ${DRIVERS}`);
}

/** node:sqlite, also that of Deno, which has no such method. */
const isNodeSqlite = (Driver) =>
  typeof Driver.prototype.enableLoadExtension === 'function' || Driver.name === 'DatabaseSync';

/** The first value of the first row, however the driver makes rows. */
function ask(db, sql) {
  const statement = db.prepare(sql);
  if (typeof statement.then === 'function') throw new TypeError(`this is not ${DRIVERS}: its methods return promises`);
  // better-sqlite3 gets no rows from a statement without columns.
  if (statement.reader === false) return void statement.run();
  return firstValue(statement.get());
}

function askAsync(db, sql) {
  return new Promise((resolve, reject) => {
    db.get(sql, (error, row) => (error ? reject(error) : resolve(firstValue(row))));
  });
}

function firstValue(row) {
  return row === undefined || row === null ? undefined : Object.values(row)[0];
}

/** Follows `steps`, a generator that yields SQL and takes the answers. Returns a promise for node-sqlite3. */
function follow(db, steps) {
  return isAsync(db) ? followAsync(db, steps) : followSync(db, steps);
}

function followSync(db, steps) {
  let step = steps.next();
  while (!step.done) step = steps.next(ask(db, step.value));
  return step.value;
}

async function followAsync(db, steps) {
  let step = steps.next();
  while (!step.done) step = steps.next(await askAsync(db, step.value));
  return step.value;
}

/** SQLite's code for "busy", which each driver says in its own way. */
function isBusy(error) {
  const number = error.errcode ?? error.rawCode ?? error.errno;
  return (typeof number === 'number' && (number & 0xff) === 5) || String(error.code).startsWith('SQLITE_BUSY');
}

module.exports = { ask, follow, isAsync, isBusy, isNodeSqlite };
