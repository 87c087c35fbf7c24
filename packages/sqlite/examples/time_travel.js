// Reads a database as it was before the last change, and makes a backup of that version.
const Database = require('better-sqlite3');

async function main(path) {
  const db = new Database(path);
  const mode = db.pragma('journal_mode = lsmvbt', { simple: true });
  if (mode !== 'lsmvbt') throw new Error(`this is another SQLite: its journal_mode is ${mode}`);
  db.exec("CREATE TABLE t(a); PRAGMA lsmvbt_history = 100; INSERT INTO t VALUES ('first')");
  const version = db.pragma('lsmvbt_version', { simple: true });
  db.exec("UPDATE t SET a = 'second'");
  db.prepare('ATTACH ? AS old').run(`file:${path}?version=${version}`);
  const [now, before] = ['main', 'old'].map((schema) => db.prepare(`SELECT a FROM ${schema}.t`).pluck().get());
  await db.backup(`${path}.backup`, { attached: 'old' });
  db.close();
  console.log(`now ${now}, before ${before}`);
}

main(process.argv[2]);
