// Paths and URIs of databases.
'use strict';

const { fileURLToPath } = require('url');
const { OneWriteError } = require('./error');
const { USUAL, modeOf, modeOrAny } = require('./words');

/**
 * The URI that opens a database with onewrite, for drivers that take URIs. Call `load` first. It changes
 * a database that is in another mode. A path that begins with `file:` is a URI already, and keeps its
 * parameters.
 */
function uri(name, mode = USUAL) {
  return uriOf(name, modeOf(mode));
}

/** The same. Without `mode` the database stays in the one that it remembers. */
function uriOf(name, mode) {
  const wanted = [['vfs', 'onewrite'], ...(mode ? [['journal_mode', mode]] : [])];
  const text = textOf(name);
  refuseMemory(text);
  // Two slashes at the start would begin a host's name.
  if (!isUri(text)) return `file:${escaped(text.replace(/^\/+/, '/'))}?${query(wanted)}`;
  const [plain] = text.split('#');
  const parameters = parametersOf(plain);
  const missing = wanted.filter(([parameter, word]) => {
    const named = parameters.get(parameter);
    if (named !== null && named !== word) {
      throw new TypeError(`${text} names ${parameter}=${named}, and ${word} is asked for`);
    }
    return named === null;
  });
  return missing.length === 0 ? plain : `${plain}${plain.includes('?') ? '&' : '?'}${query(missing)}`;
}

/** The mode that a URI names, or undefined. */
function modeIn(name) {
  const [plain] = textOf(name).split('#');
  return isUri(plain) ? modeOrAny(parametersOf(plain).get('journal_mode') ?? undefined) : undefined;
}

const parametersOf = (plain) => new URLSearchParams(plain.slice((plain + '?').indexOf('?') + 1));
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

module.exports = { modeIn, plainPath, textOf, uri, uriOf };
