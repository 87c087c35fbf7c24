// The words that callers pass, and their check.
'use strict';

/** The journal modes of onewrite. */
const MODES = Object.freeze(['onewrite', 'waldio', 'swal', 'direct']);

/** The mode of a database that remembers none of them. */
const USUAL = MODES[0];

/** By SQLite's numbers. */
const LEVELS = ['OFF', 'NORMAL', 'FULL', 'EXTRA'];

function placeOf(word, what, words) {
  const small = typeof word === 'string' ? word.toLowerCase() : undefined;
  const place = words.findIndex((known) => known.toLowerCase() === small);
  if (place < 0) throw new TypeError(`unknown ${what} ${show(word)}: it is one of ${words.join(', ')}`);
  return place;
}

function show(word) {
  return typeof word === 'string' ? `'${word}'` : String(word);
}

const modeOf = (word) => MODES[placeOf(word, 'mode', MODES)];
/** Undefined stays so: any mode, or the one that the database remembers. */
const modeOrAny = (word) => (word === undefined ? undefined : modeOf(word));
const levelOf = (word) => placeOf(word, 'synchronous', LEVELS);

module.exports = { LEVELS, MODES, USUAL, levelOf, modeOf, modeOrAny };
