// Durable SQLite commits in one device write.
//
//     const db = require('onewrite').open('app.db', { driver: require('better-sqlite3') });
//
// The database is then in journal mode `onewrite` at synchronous=FULL, or `open` has thrown. One that
// remembers another of `MODES` stays in that one.
'use strict';

const { OneWriteError } = require('./lib/error');
const { getLoadablePath } = require('./lib/library');
const { load } = require('./lib/load');
const { check } = require('./lib/check');
const { open } = require('./lib/open');
const { uri } = require('./lib/uri');
const { MODES } = require('./lib/words');

module.exports = { MODES, OneWriteError, check, getLoadablePath, load, open, uri };
