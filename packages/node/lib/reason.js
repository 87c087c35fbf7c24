// Why SQLite cannot open or write a database: its own words tell neither the place nor the way out.
'use strict';

const fs = require('fs');
const { dirname, resolve } = require('path');
const { fileURLToPath } = require('url');

const ABOUT_FILES = /unable to open|read-?only|directory does not exist/i;
const { R_OK, W_OK, X_OK } = fs.constants;

/** Of a path or a URI, after an error. Undefined where the files tell nothing. */
function reasonAndWayOut(name, said) {
  if (!ABOUT_FILES.test(said)) return undefined;
  const path = resolve(pathOf(name));
  const directory = dirname(path);
  if (!isDirectory(directory)) return `there is no directory ${directory}: make it first`;
  if (isDirectory(path)) return `${path} is a directory: name a file in it`;
  if (fs.existsSync(path) && !may(path, R_OK | W_OK)) {
    return `this user may not read and write ${path}: change its owner or mode`;
  }
  if (!may(directory, W_OK | X_OK)) {
    return `this user may make no files in ${directory}, where the log lies, too: change its owner or mode`;
  }
  return undefined;
}

function pathOf(name) {
  if (!name.startsWith('file:')) return name;
  const [plain] = name.split(/[?#]/);
  return plain.startsWith('file:///') ? fileURLToPath(plain) : decodeURIComponent(plain.slice('file:'.length));
}

function isDirectory(path) {
  return fs.statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function may(path, what) {
  try {
    fs.accessSync(path, what);
    return true;
  } catch {
    return false;
  }
}

module.exports = { reasonAndWayOut };
