// Compiled, not run: the types of the package with those of the drivers.
import onewrite, { OneWriteError, type Status } from 'onewrite';
import BetterSqlite3 from 'better-sqlite3';
import { DatabaseSync } from 'node:sqlite';
import * as sqlite3 from 'sqlite3';

const db: BetterSqlite3.Database = onewrite.open('app.db', { driver: BetterSqlite3, mode: 'waldio', fileMustExist: true });
const own: DatabaseSync = onewrite.open(new URL('file:///app.db'), { driver: DatabaseSync, readonly: true, timeout: 10 });
const status: Status = onewrite.check(db, { mode: 'waldio', synchronous: 'EXTRA' });
const callbacks = new sqlite3.Database(onewrite.uri('app.db'));
const isLater: Promise<boolean> = onewrite.load(callbacks);
const isNow: boolean = onewrite.load(own);
const later: Promise<Status> = onewrite.check(callbacks);
const code: 'ERR_ONEWRITE' = new OneWriteError('why').code;
// @ts-expect-error: no mode of onewrite
onewrite.open('app.db', { driver: BetterSqlite3, mode: 'wal' });
// @ts-expect-error: a driver is needed
onewrite.open('app.db', {});
// @ts-expect-error: no level
onewrite.check(db, { synchronous: 'on' });
export { code, isLater, isNow, later, status };
