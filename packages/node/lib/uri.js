// Paths and URIs of databases.
'use strict';

const { fileURLToPath } = require('url');
const { OneWriteError } = require('./error');
const { modeOf } = require('./words');

/**
 * The URI that opens a database with onewrite, for drivers that take URIs. Call `load` first. A path
 * that begins with `file:` is a URI already, and keeps its parameters.
 */
function uri(name, mode = 'onewrite') {
  const wanted = [['vfs', 'onewrite'], ['journal_mode', modeOf(mode)]];
  const text = textOf(name);
  refuseMemory(text);
  // Two slashes at the start would begin a host's name.
  if (!isUri(text)) return `file:${escaped(text.replace(/^\/+/, '/'))}?${query(wanted)}`;
  const [plain] = text.split('#');
  const parameters = new URLSearchParams(plain.slice((plain + '?').indexOf('?') + 1));
  const missing = wanted.filter(([parameter, word]) => {
    const named = parameters.get(parameter);
    if (named !== null && named !== word) {
      throw new TypeError(`${text} names ${parameter}=${named}, and ${word} is asked for`);
    }
    return named === null;
  });
  return missing.length === 0 ? plain : `${plain}${plain.includes('?') ? '&' : '?'}${query(missing)}`;
}

const isUri = (text) => text.startsWith('file:');
const escaped = (text) => text.split('/').map(encodeURIComponent).join('/');
const query = (pairs) => pairs.map(([name, word]) => `${name}=${word}`).join('&');

function textOf(name) {
  if (name instanceof URL && name.protocol === 'file:') return name.href;
  if (typeof name === 'string') return name;
  throw new TypeError('the path is a string or a URL of a file');
}

function refuseMemory(text) {
  const isMemory = /^(:memory:)?$|^file::memory:|^file:.*[?&]mode=memory/.test(text);
  if (isMemory) throw new OneWriteError('a database in memory has no journal: open it with the driver');
}

/** For a driver without URIs, which would make a file of that name. */
function plainPath(name) {
  const text = textOf(name);
  refuseMemory(text);
  if (!isUri(text)) return text;
  if (name instanceof URL && name.search === '') return fileURLToPath(name);
  throw new TypeError(
    `this driver takes no URIs, and would make a file that is named ${text}: give the path alone`,
  );
}

module.exports = { plainPath, textOf, uri };
