// The package as npm has it: versions, platform packages, an installation, types, and the example of the documents.
'use strict';

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { describe, it } = require('node:test');
const { PLATFORMS, libcHere } = require('../lib/platforms');
const { PACKAGE, ROOT, available, driverOf, environment, one, place } = require('./support');

const hasDriver = available(['better-sqlite3']).length > 0;
const manifest = require('../package.json');
const LIBRARY = process.env.ONEWRITE_EXTENSION_LIBRARY;
const here = PLATFORMS.find(({ cpu, libc }) => cpu === process.arch && libc === libcHere());
const read = (name) => fs.readFileSync(path.join(ROOT, name), 'utf8');

function run(command, words, options = {}) {
  const done = spawnSync(command, words, { encoding: 'utf8', timeout: 300_000, env: environment(), ...options });
  assert.equal(done.status, 0, `${command} ${words.join(' ')}: ${done.error ?? ''} ${done.stdout}\n${done.stderr}`);
  return done.stdout.trim();
}

const platformPackage = (...words) => spawnSync(process.execPath, [path.join(PACKAGE, 'platform-package.js'), ...words], { encoding: 'utf8' });

describe('the package', () => {
  it('has the version of the project, and packages of the same', () => {
    assert.equal(manifest.version, /^version = "(.+)"/m.exec(read('Cargo.toml'))[1]);
    const expected = Object.fromEntries(PLATFORMS.map(({ name }) => [name, manifest.version]).sort());
    assert.deepEqual(manifest.optionalDependencies, expected);
  });

  it('has a platform package for each target of a release', () => {
    const targets = [...read('scripts/release').matchAll(/^ {8}"([\w-]+)", "\w+-unknown-linux/gm), ...read('scripts/release').matchAll(/Target\("([\w-]+)"/g)];
    assert.deepEqual(targets.map((match) => match[1]).sort(), PLATFORMS.map(({ target }) => target).sort());
  });

  it('exports the same to import and require', async () => {
    const { default: whole, ...names } = await import('../index.mjs');
    assert.deepEqual(Object.keys(names).sort(), Object.keys(require('..')).sort());
    assert.equal(whole, require('..'));
    for (const name of Object.keys(names)) assert.equal(names[name], require('..')[name]);
  });

  it('refuses to pack a library of another machine', (t) => {
    const { directory } = place(t);
    for (const { target } of PLATFORMS.filter((known) => known !== here)) {
      const refused = platformPackage(target, LIBRARY, path.join(directory, target));
      assert.equal(refused.status, 2);
      assert.match(refused.stderr, new RegExp(`is no library for ${target}`));
    }
    for (const words of [['x86', LIBRARY, directory], [PLATFORMS[0].target, LIBRARY], []]) {
      const refused = platformPackage(...words);
      assert.equal(refused.status, 2);
      assert.match(refused.stderr, /usage: .*x86_64\|aarch64\|armv7\|x86_64-musl\|aarch64-musl\|armv7-musl LIBRARY DIRECTORY/);
    }
    assert.deepEqual(fs.readdirSync(directory), []);
  });

  it('is installed by npm with its platform package, and commits', { skip: !here || !hasDriver }, (t) => {
    const { directory } = place(t);
    const platform = path.join(directory, 'platform');
    assert.equal(platformPackage(here.target, LIBRARY, platform).status, 0);
    const { os, cpu, libc, version } = JSON.parse(fs.readFileSync(path.join(platform, 'package.json')));
    assert.deepEqual([os, cpu, libc, version], [['linux'], [here.cpu], [here.libc], manifest.version]);
    const tarballs = [PACKAGE, platform].map((from) => path.join(directory, run('npm', ['pack', '--silent', '--pack-destination', directory, from])));
    const app = path.join(directory, 'app');
    fs.mkdirSync(app);
    fs.writeFileSync(path.join(app, 'package.json'), '{"private": true}');
    run('npm', ['install', '--silent', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', ...tarballs], { cwd: app });
    const code = `
      const onewrite = require('onewrite');
      const db = onewrite.open('app.db', { driver: 'better-sqlite3' });
      db.exec('CREATE TABLE t(x)');
      console.log(onewrite.check(db).mode, onewrite.getLoadablePath());
    `;
    const env = environment({ ONEWRITE_EXTENSION_LIBRARY: undefined });
    const library = path.join(app, 'node_modules', here.name, 'libonewrite.so');
    assert.equal(run(process.execPath, ['-e', code], { cwd: app, env }), `onewrite ${fs.realpathSync(library)}`);
    const packed = fs.readdirSync(path.join(app, 'node_modules/onewrite')).sort();
    assert.deepEqual(packed, ['README.md', 'index.d.mts', 'index.d.ts', 'index.js', 'index.mjs', 'lib', 'package.json']);
  });

  it('has types that go with those of the drivers', (t) => {
    const modules = process.env.NODE_PATH;
    const { directory } = place(t);
    fs.mkdirSync(path.join(directory, 'node_modules'));
    const link = (name, target) => fs.symlinkSync(target, path.join(directory, 'node_modules', name));
    for (const name of ['better-sqlite3', 'sqlite3', '@types']) link(name, path.join(modules, name));
    link('onewrite', PACKAGE);
    fs.copyFileSync(path.join(__dirname, 'types.ts'), path.join(directory, 'types.mts'));
    fs.copyFileSync(path.join(__dirname, 'types.ts'), path.join(directory, 'types.cts'));
    const config = {
      compilerOptions: {
        module: 'nodenext', strict: true, noEmit: true, esModuleInterop: true, types: ['node'], traceResolution: true,
      },
      files: ['types.mts', 'types.cts'],
    };
    fs.writeFileSync(path.join(directory, 'tsconfig.json'), JSON.stringify(config));
    const found = run(process.execPath, [path.join(modules, 'typescript/bin/tsc'), '-p', directory]);
    for (const types of ['index.d.ts', 'index.d.mts']) assert.ok(found.includes(`resolved to '${path.join(PACKAGE, types)}'`), types);
  });
});

function examples() {
  const blocks = (name, after) => [...read(name).split(after)[1].matchAll(/```js\n([^]*?)```/g)].map((match) => match[1]);
  const [example, bare] = blocks('docs/languages.md', '\n## Node\n');

  /** Runs the text in a directory that has what it names. */
  function ran(t, text) {
    const { directory, file } = place(t);
    const modules = path.join(directory, 'node_modules');
    fs.mkdirSync(modules);
    fs.symlinkSync(PACKAGE, path.join(modules, 'onewrite'));
    fs.copyFileSync(LIBRARY, path.join(directory, 'libonewrite.so'));
    fs.writeFileSync(path.join(directory, 'example.js'), `${text}\nconsole.log(JSON.stringify(require('onewrite').check(db)));\n`);
    const status = JSON.parse(run(process.execPath, ['example.js'], { cwd: directory }));
    return { status, file };
  }

  it('is one, of at most ten lines', () => {
    assert.equal(blocks('packages/node/README.md', '# onewrite')[0], example);
    assert.ok(example.trim().split('\n').length <= 10, example);
  });

  it('opens in the mode', (t) => {
    const { status, file } = ran(t, example);
    assert.equal(status.mode, 'onewrite');
    const onewrite = require('..');
    const db = onewrite.open(file, { driver: driverOf('better-sqlite3') });
    assert.equal(one(db, 'SELECT count(*) FROM t'), 1);
    db.close();
  });

  it('without the package opens in the mode, too', (t) => {
    assert.equal(ran(t, bare).status.mode, 'onewrite');
  });
}

if (hasDriver) describe('the example of the documents', examples);
