// Finds the extension: where ONEWRITE_EXTENSION_LIBRARY says, else in the platform package.
'use strict';

const fs = require('fs');
const path = require('path');
const { ONLY_LINUX, OneWriteError, isSupported } = require('./error');
const { version } = require('../package.json');
const { LIBRARY, PLATFORMS, libcHere } = require('./platforms');

// The command `onewrite` reads the same variable.
const VARIABLE = 'ONEWRITE_EXTENSION_LIBRARY';

/** npm leaves the package out where it was asked to, and where it got the file of the main package alone. */
function installed(name) {
  const file = `${name.replace('@onewrite/', 'onewrite-')}-${version}.tgz`;
  return `install it from its file (npm install ${file}), or onewrite again with its optional dependencies (npm install --include=optional)`;
}

function getLoadablePath() {
  const named = process.env[VARIABLE];
  if (named) {
    if (isFile(named)) return path.resolve(named);
    throw new OneWriteError(`${VARIABLE}: there is no file ${named}`);
  }
  if (!isSupported()) throw new OneWriteError(ONLY_LINUX);
  const libc = libcHere();
  const platform = PLATFORMS.find((known) => known.cpu === process.arch && known.libc === libc);
  if (!platform) throw noExtension(`there is no package for the processor ${process.arch} with ${libc}`);
  try {
    return require.resolve(`${platform.name}/${LIBRARY}`);
  } catch (error) {
    throw noExtension(`the package ${platform.name} is not installed: ${installed(platform.name)}`, error);
  }
}

function noExtension(why, cause) {
  return new OneWriteError(
    `no extension is found: ${why}. Name the library in ${VARIABLE}`,
    { cause },
  );
}

function isFile(name) {
  const found = fs.statSync(name, { throwIfNoEntry: false });
  return found !== undefined && found.isFile();
}

module.exports = { VARIABLE, getLoadablePath };
