/** The journal modes of onewrite. */
export type Mode = 'onewrite' | 'waldio' | 'swal' | 'direct';
export type Synchronous = 'OFF' | 'NORMAL' | 'FULL' | 'EXTRA';

export const MODES: readonly Mode[];

/** onewrite is not in use as it was asked for. The message has the reason. */
export class OneWriteError extends Error {
  readonly code: 'ERR_ONEWRITE';
}

/** `PRAGMA onewrite_status`. The page "Status fields" has all of them. */
export interface Status {
  /** The version of onewrite. */
  version: string;
  /** The version of SQLite that the driver has. */
  sqlite: string;
  /** Its own faults in WAL mode. */
  sqlite_faults: string[];
  mode: Mode | null;
  /** The level of the connection. */
  synchronous: 'off' | 'normal' | 'full' | 'extra' | null;
  /** Words of the environment that mean nothing. */
  warnings: string[];
  /** Whether SQLite without onewrite is kept off now. */
  guarded: boolean;
  [field: string]: unknown;
}

/** A handle of node-sqlite3. */
export interface CallbackDatabase {
  parallelize(callback?: () => void): void;
  loadExtension(path: string, callback?: (error: Error | null) => void): unknown;
}

/** A handle of better-sqlite3, node:sqlite or libsql. */
export interface Database {
  prepare(sql: string): unknown;
  exec(sql: string): unknown;
}

export interface Wanted {
  /**
   * Without it `open` takes the one that the database remembers, and `onewrite` for any other database.
   * `check` takes any of them.
   */
  mode?: Mode;
  /** `FULL` by default. */
  synchronous?: Synchronous;
}

export interface OpenOptions extends Wanted {
  /** `false` by default. */
  readonly?: boolean;
  /** How long another connection that is in the way is waited for, in milliseconds: 5000 by default. */
  timeout?: number;
  /** All other options go to the driver. */
  [option: string]: unknown;
}

/** The path of the loadable extension, for drivers that load it themselves. */
export function getLoadablePath(): string;

/**
 * Databases that the driver of `db` opens from now on use onewrite. The answer is whether they do:
 * false, with a warning, on systems other than Linux. Throws if the extension cannot be loaded.
 */
export function load(db: CallbackDatabase): Promise<boolean>;
export function load(db: Database): boolean;

/** Returns the status. Throws unless mode and durability are at least as asked for. */
export function check(db: CallbackDatabase, wanted?: Wanted): Promise<Status>;
export function check(db: Database, wanted?: Wanted): Status;

/**
 * Opens a database in a mode of onewrite. `driver` is the class of better-sqlite3, `DatabaseSync` of
 * node:sqlite, the class of libsql, or a name. Throws unless mode and durability are as asked for.
 */
export function open<Handle extends Database>(
  path: string | URL,
  options: OpenOptions & { driver: new (path: string, options?: any) => Handle },
): Handle;
export function open(
  path: string | URL,
  options: OpenOptions & { driver: 'better-sqlite3' | 'node:sqlite' | 'libsql' },
): any;

/**
 * The URI that opens a database with onewrite, for drivers that take URIs. Call `load` first. It changes
 * a database that is in another mode. `mode` is `onewrite` by default.
 */
export function uri(path: string | URL, mode?: Mode): string;
