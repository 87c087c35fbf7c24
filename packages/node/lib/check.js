// Checks that a database is in a mode of onewrite, and that its commits are durable.
'use strict';

const { isMainThread } = require('worker_threads');
const { ONLY_LINUX, OneWriteError, isSupported } = require('./error');
const { follow } = require('./handle');
const { LEVELS, USUAL, levelOf, modeOrAny } = require('./words');

const FULL = LEVELS.indexOf('FULL');

/**
 * Returns `PRAGMA onewrite_status`, for node-sqlite3 as a promise. Throws OneWriteError with the reason
 * unless the database is in the mode, and its commits are at least as durable as `synchronous`. Without
 * `mode` any mode of onewrite will do.
 */
function check(db, { mode, synchronous = 'FULL' } = {}) {
  return follow(db, checking(modeOrAny(mode), levelOf(synchronous)));
}

/** The steps of a check, for `follow`. */
function* checking(mode, level) {
  const answer = yield 'PRAGMA onewrite_status';
  yield* checkName(answer !== undefined);
  if (answer === undefined) throw new OneWriteError(`the connection does not use onewrite: ${whyNot()}`);
  const status = JSON.parse(answer);
  yield* checkMode(status, mode);
  checkLevel(status, level);
  return status;
}

/** A driver without URIs makes a file of the URI's name. */
function* checkName(isOurs) {
  const file = yield "SELECT file FROM pragma_database_list WHERE name = 'main'";
  const literal = /\/(file:[^/]*)$/.exec(file ?? '');
  if (!literal || (isOurs && !/[?&]vfs=/.test(literal[1]))) return;
  throw new OneWriteError(
    `the database is a file that is named ${literal[1]}, because the driver took the URI for a name: ` +
      'open it by its path alone',
  );
}

function whyNot() {
  if (!isSupported()) return ONLY_LINUX;
  if (process.versions.bun) {
    return (
      'SQLite opened it with another VFS. In Bun the extension does not see what a program sets in process.env: ' +
      'start it with ONEWRITE_MAKE_DEFAULT=1 and ONEWRITE_UPGRADE_WAL=onewrite'
    );
  }
  const inWorker = isMainThread ? '' : '. In a worker thread, load must be called in the main thread first';
  return `SQLite opened it with another VFS; use onewrite.open, or call onewrite.load before you open it${inWorker}`;
}

function* checkMode(status, mode) {
  const keptOut = status.kept_out_of;
  if (keptOut) {
    throw new OneWriteError(`the database is not in ${mode ?? keptOut.mode ?? USUAL} mode: ${keptOut.why}`);
  }
  if (status.mode === null || status.mode !== (mode ?? status.mode)) {
    const found = status.mode ?? (yield 'PRAGMA journal_mode') ?? 'unknown';
    throw new OneWriteError(
      `the database is in ${found} mode, not in ${mode ?? 'one of onewrite'}: run PRAGMA ` +
        `journal_mode=${mode ?? USUAL} on it`,
    );
  }
  if (status.poisoned) throw new OneWriteError(`the log cannot be used any more: ${status.poisoned}`);
}

/** The status has the level that holds: onewrite_synchronous may raise the one of the pragma. */
function checkLevel(status, level) {
  const found = levelOf(status.synchronous);
  if (found < level) {
    throw new OneWriteError(
      `synchronous is ${LEVELS[found]}, not ${LEVELS[level]}: run PRAGMA synchronous=${LEVELS[level]} on each connection`,
    );
  }
  if (level < FULL) return;
  const weak = { sync: status.sync === 'normal' && 'normal', group_synch: status.group_synch };
  for (const [setting, word] of Object.entries(weak)) {
    if (!word) continue;
    throw new OneWriteError(
      `onewrite_${setting}=${word} lets a power cut lose commits: it does not go with ` +
        `synchronous=${LEVELS[level]}`,
    );
  }
}

module.exports = { check };
