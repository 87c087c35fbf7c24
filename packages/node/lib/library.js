// Finds the extension: where ONEWRITE_EXTENSION_LIBRARY says, else in the platform package.
'use strict';

const fs = require('fs');
const path = require('path');
const { ONLY_LINUX, OneWriteError, isSupported } = require('./error');
const { LIBRARY, PLATFORMS } = require('./platforms');

// The command `onewrite` reads the same variable.
const VARIABLE = 'ONEWRITE_EXTENSION_LIBRARY';

function getLoadablePath() {
  const named = process.env[VARIABLE];
  if (named) {
    if (isFile(named)) return path.resolve(named);
    throw new OneWriteError(`${VARIABLE}: there is no file ${named}`);
  }
  if (!isSupported()) throw new OneWriteError(ONLY_LINUX);
  const platform = PLATFORMS.find((known) => known.cpu === process.arch);
  if (!platform) throw noExtension(`there is no package for the processor ${process.arch}`);
  try {
    return require.resolve(`${platform.name}/${LIBRARY}`);
  } catch (error) {
    throw noExtension(`the package ${platform.name} is not installed${whyNot()}`, error);
  }
}

function noExtension(why, cause) {
  return new OneWriteError(
    `no extension is found: ${why}. Name the library in ${VARIABLE}`,
    { cause },
  );
}

/** npm leaves the package out on musl, and where it was asked to. */
function whyNot() {
  if (!process.report.getReport().header.glibcVersionRuntime) return ': it needs glibc, and this system has musl';
  return ': install onewrite again, with its optional dependencies (npm install --include=optional)';
}

function isFile(name) {
  const found = fs.statSync(name, { throwIfNoEntry: false });
  return found !== undefined && found.isFile();
}

module.exports = { getLoadablePath };
