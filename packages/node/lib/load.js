// Loads the extension into the SQLite of a driver. That SQLite then has the VFS for the whole process.
'use strict';

const { ONLY_LINUX, OneWriteError, isSupported } = require('./error');
const { whyNot, whyOtherLibc } = require('./elf');
const { isAsync } = require('./handle');
const { VARIABLE, getLoadablePath } = require('./library');

const UPGRADE_VARIABLE = 'ONEWRITE_UPGRADE_WAL';
const DEFAULT_VARIABLE = 'ONEWRITE_MAKE_DEFAULT';

const OTHER_LIBRARY = `install onewrite again, or name another library in ${VARIABLE}`;
const THAT_LOAD = 'use better-sqlite3, node:sqlite from Node 22.13 on, or libsql';
const ALLOW = ': open the handle with { allowExtension: true }';

let hasWarned = false;

/**
 * Databases that the driver of `db` opens from now on use onewrite. Returns whether they do, for
 * node-sqlite3 as a promise: false, with a warning, on systems other than Linux.
 */
function load(db) {
  const later = isAsync(db);
  if (!isSupported()) {
    warn();
    return later ? Promise.resolve(false) : false;
  }
  return later ? loadAsync(db) : loadInto(db, true);
}

function warn() {
  if (hasWarned) return;
  hasWarned = true;
  process.emitWarning(`${ONLY_LINUX}: databases are in stock WAL here`, { code: 'ONEWRITE_ONLY_LINUX' });
}

/** `isDefault`: also where a database names no VFS. `ifForbidden`: what helps where the handle may not load. */
function loadInto(db, isDefault, ifForbidden = ALLOW) {
  const path = prepare(isDefault);
  if (typeof db.loadExtension !== 'function') throw loadsNone(db.constructor.name);
  try {
    db.loadExtension(path);
  } catch (error) {
    throw failure(path, error, ifForbidden);
  }
  return true;
}

async function loadAsync(db) {
  const path = prepare(true);
  try {
    await new Promise((resolve, reject) => db.loadExtension(path, (error) => (error ? reject(error) : resolve())));
  } catch (error) {
    throw failure(path, error, ALLOW);
  }
  return true;
}

/**
 * Sets what the extension reads from the environment. It stays set: a worker thread may load another
 * driver, and cannot set the environment that the extension reads there.
 */
function prepare(isDefault) {
  const path = getLoadablePath();
  const reason = whyNot(path);
  if (reason) {
    throw new OneWriteError(`cannot load ${path}: ${reason}: ${OTHER_LIBRARY}`);
  }
  process.env[UPGRADE_VARIABLE] ??= 'onewrite'; // A program that asks for WAL keeps the mode.
  if (isDefault) process.env[DEFAULT_VARIABLE] = '1';
  return path;
}

function failure(path, error, ifForbidden) {
  const foreign = whyOtherLibc(path);
  if (foreign) return new OneWriteError(`cannot load ${path}: ${foreign}: ${OTHER_LIBRARY}`, { cause: error });
  const isForbidden = /loading is not allowed|not authorized|allowExtension/.test(error.message);
  return new OneWriteError(`cannot load ${path}: ${error.message}${isForbidden ? ifForbidden : ''}`, { cause: error });
}

function loadsNone(name) {
  return new OneWriteError(`the driver ${name}, in Node ${process.version}, loads no extensions: ${THAT_LOAD}`);
}

module.exports = { THAT_LOAD, load, loadInto, loadsNone, warn };
