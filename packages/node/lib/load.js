// Loads the extension into the SQLite of a driver. That SQLite then has the VFS for the whole process.
'use strict';

const { ONLY_LINUX, OneWriteError, isSupported } = require('./error');
const { whyNot } = require('./elf');
const { isAsync } = require('./handle');
const { VARIABLE, getLoadablePath } = require('./library');

const UPGRADE_VARIABLE = 'ONEWRITE_UPGRADE_WAL';
const DEFAULT_VARIABLE = 'ONEWRITE_MAKE_DEFAULT';

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

/** `isDefault`: also where a database names no VFS. */
function loadInto(db, isDefault) {
  const path = prepare(isDefault);
  if (typeof db.loadExtension !== 'function') {
    throw new OneWriteError(`cannot load ${path}: the driver of this Node (${process.version}) loads no extensions`);
  }
  try {
    db.loadExtension(path);
  } catch (error) {
    throw failure(path, error);
  }
  return true;
}

async function loadAsync(db) {
  const path = prepare(true);
  try {
    await new Promise((resolve, reject) => db.loadExtension(path, (error) => (error ? reject(error) : resolve())));
  } catch (error) {
    throw failure(path, error);
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
    throw new OneWriteError(`cannot load ${path}: ${reason}: install onewrite again, or name another library in ${VARIABLE}`);
  }
  process.env[UPGRADE_VARIABLE] ??= 'onewrite'; // A program that asks for WAL keeps the mode.
  if (isDefault) process.env[DEFAULT_VARIABLE] = '1';
  return path;
}

function failure(path, error) {
  const isForbidden = /loading is not allowed|not authorized|allowExtension/.test(error.message);
  const wayOut = isForbidden ? ': open the handle with { allowExtension: true }' : '';
  return new OneWriteError(`cannot load ${path}: ${error.message}${wayOut}`, { cause: error });
}

module.exports = { load, loadInto, warn };
