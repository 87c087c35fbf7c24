// Opens databases in a mode of onewrite.
'use strict';

const { resolve } = require('path');
const { OneWriteError, isSupported } = require('./error');
const { check } = require('./check');
const { ask, isBusy, isNodeSqlite } = require('./handle');
const { THAT_LOAD, loadInto, loadsNone, warn } = require('./load');
const { reasonAndWayOut } = require('./reason');
const { modeIn, plainPath, textOf, uriOf } = require('./uri');
const { LEVELS, USUAL, levelOf, modeOrAny } = require('./words');

const RETRY_MS = 20;

/**
 * Opens a database with a driver, in a journal mode of onewrite, and returns the driver's handle. Without
 * `mode` it is the one that the database remembers, and `onewrite` for any other database. The options
 * that are not named here go to the driver. Another connection that is in the way is waited for,
 * `timeout` milliseconds long.
 *
 * Throws OneWriteError with the reason if the database is not in that mode, at `synchronous`, and
 * TypeError for an unknown word. On systems other than Linux it warns, and opens in stock WAL.
 */
function open(path, options = {}) {
  const { driver, mode, synchronous = 'FULL', readonly = false, timeout = 5000, ...others } = options;
  checkOptions(others);
  const asked = modeOrAny(mode);
  const wanted = { mode: asked ?? modeIn(path), synchronous: LEVELS[levelOf(synchronous)] };
  const Driver = classOf(driver);
  if (!Number.isInteger(timeout) || timeout < 0) throw new TypeError('timeout is a number of milliseconds');
  const driverOptions = { ...others, ...readonlyOption(Driver, readonly), timeout };
  const end = Date.now() + timeout;
  for (let db; ; ) {
    db ??= opened(Driver, path, { mode: asked, readonly }, driverOptions);
    try {
      ask(db, `PRAGMA busy_timeout=${timeout}`);
      if (isSupported()) enter(db, wanted);
      else enterStock(db, wanted.synchronous);
      return db;
    } catch (error) {
      const again = error.cause && isBusy(error.cause) && Date.now() < end;
      // An open connection is in the way of others that wait, too. So each try opens another one.
      if (!again || closesAtOnce(error.cause)) {
        db.close();
        db = undefined;
      }
      if (!again) throw nameDatabase(error, path);
    }
    sleep(RETRY_MS * (1 + Math.random()));
  }
}

/** The error with its database and the way out. A driver's error becomes a OneWriteError. */
function nameDatabase(error, path) {
  const name = textOf(path);
  const said = error.message.replace('automatic extension loading failed: ', '');
  const found = reasonAndWayOut(name, said);
  if (!found && (error instanceof TypeError || error instanceof RangeError)) return error; // wrong options
  const text = found ? `${said}: ${found}` : said;
  const isNamed = said.startsWith(name) || said.includes(resolve(name));
  return new OneWriteError(isNamed ? text : `${name}: ${text}`, { cause: error.cause ?? error });
}

// Our option for each name that is close to it, in small letters and without underscores.
const OPTIONS = {
  mode: 'mode',
  journalmode: 'mode',
  synchronous: 'synchronous',
  sync: 'synchronous',
  readonly: 'readonly',
  timeout: 'timeout',
  busytimeout: 'timeout',
};

/** Drivers ignore options that they do not know, so one that is close to ours is an error. */
function checkOptions(others) {
  for (const name of Object.keys(others)) {
    const meant = OPTIONS[name.toLowerCase().replaceAll('_', '')];
    if (meant) throw new TypeError(`unknown option '${name}': onewrite.open takes ${meant}`);
  }
}

/** Whether the driver of this error closes a file at once. libsql waits for the garbage collector. */
function closesAtOnce(error) {
  return error.rawCode === undefined;
}

function opened(Driver, path, { mode, readonly }, driverOptions) {
  const hasUris = takesUris(Driver);
  const name = hasUris ? uriOf(path, mode) + (readonly ? '&mode=ro' : '') : plainPath(path);
  if (isSupported()) {
    loadOnce(Driver, !hasUris);
    try {
      return new Driver(name, driverOptions);
    } catch (error) {
      throw nameDatabase(error, path);
    }
  }
  warn();
  return new Driver(hasUris ? textOf(path) : name, driverOptions);
}

function classOf(driver) {
  const names = ['better-sqlite3', 'node:sqlite', 'libsql'];
  const found = typeof driver === 'string' && names.includes(driver) ? required(driver) : driver;
  const Driver = found?.DatabaseSync ?? found?.default ?? found;
  const methods = typeof Driver === 'function' ? Driver.prototype : undefined;
  const isClass = ['prepare', 'exec', 'close'].every((name) => typeof methods?.[name] === 'function');
  if (isClass && !methods.parallelize) return Driver;
  throw new TypeError(
    'driver is the class that opens databases: that of better-sqlite3, DatabaseSync of node:sqlite, ' +
      `that of libsql, or one of the names ${names.join(', ')}`,
  );
}

function required(name) {
  try {
    return require(name);
  } catch (error) {
    throw new OneWriteError(`there is no driver ${name}: ${error.message.split('\n')[0]}`, { cause: error });
  }
}

/** node:sqlite spells it in another way, which better-sqlite3 refuses. */
function readonlyOption(Driver, readonly) {
  return isNodeSqlite(Driver) ? { readOnly: readonly } : { readonly };
}

const uriTakers = new WeakMap();

/** Whether the driver opens URIs. The probe makes no file: without URIs, its path leads nowhere. */
function takesUris(Driver) {
  if (!uriTakers.has(Driver)) uriTakers.set(Driver, canOpen(Driver, 'file:/dev/null/probe?mode=memory'));
  return uriTakers.get(Driver);
}

function canOpen(Driver, name) {
  try {
    new Driver(name).close();
    return true;
  } catch {
    return false;
  }
}

const loaded = new WeakSet();

function loadOnce(Driver, isDefault) {
  if (loaded.has(Driver)) return;
  if (typeof Driver.prototype.loadExtension !== 'function') throw loadsNone(Driver.name);
  const db = new Driver(':memory:', isNodeSqlite(Driver) ? { allowExtension: true } : {});
  try {
    loadInto(db, isDefault, `: ${THAT_LOAD}`);
  } finally {
    db.close();
  }
  loaded.add(Driver);
}

function enter(db, wanted) {
  try {
    ask(db, `PRAGMA journal_mode=${wanted.mode ?? remembered(db)}`);
  } catch (error) {
    throw new OneWriteError(error.message, { cause: error });
  }
  ask(db, `PRAGMA synchronous=${wanted.synchronous}`);
  check(db, wanted);
}

/** The mode of onewrite that the database remembers, and the usual one if it remembers none. */
function remembered(db) {
  ask(db, 'PRAGMA journal_mode'); // opens the file
  const status = JSON.parse(ask(db, 'PRAGMA onewrite_status') ?? '{}');
  return status.mode ?? status.kept_out_of?.mode ?? USUAL;
}

function enterStock(db, synchronous) {
  ask(db, 'PRAGMA journal_mode=WAL');
  ask(db, `PRAGMA synchronous=${synchronous}`);
}

function sleep(milliseconds) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

module.exports = { open };
