// Writes the directory of a platform package, for `npm pack`:
//
//     node platform-package.js TARGET LIBRARY DIRECTORY
//
// TARGET is one of scripts/release, such as x86_64 or aarch64-musl. LIBRARY is the extension for it.
'use strict';

const fs = require('fs');
const path = require('path');
const { LIBRARY, PLATFORMS } = require('./lib/platforms');
const main = require('./package.json');

const NEEDS = { glibc: 'glibc 2.17 or later', musl: 'musl 1.2 or later' };

function manifest({ target, name, cpu, libc }) {
  return {
    name,
    version: main.version,
    description: `The SQLite extension onewrite, for Linux on ${target.split('-')[0]} with ${NEEDS[libc]}`,
    license: main.license,
    os: ['linux'],
    cpu: [cpu],
    libc: [libc],
    files: [LIBRARY],
    preferUnplugged: true,
  };
}

/** Fails unless the library is for this machine: ELF's class (1: 32 bits, 2: 64 bits), machine, C library. */
function checkElf({ target, elf, libc }, library) {
  const bytes = fs.readFileSync(library);
  const head = bytes.subarray(0, 20);
  const isElf = head.length === 20 && head.toString('latin1', 0, 4) === '\x7fELF';
  const found = isElf ? { class: head[4], machine: head.readUInt16LE(18) } : {};
  // A library names the C library that it needs: musl's is libc.so.
  const needed = bytes.includes('libc.so.6') ? 'glibc' : 'musl';
  const isRight = found.class === elf.class && found.machine === elf.machine && needed === libc;
  if (!isRight) fail(`${library} is no library for ${target}`);
}

function fail(text) {
  console.error(text);
  process.exit(2);
}

function write(platform, library, directory) {
  fs.mkdirSync(directory, { recursive: true });
  fs.copyFileSync(library, path.join(directory, LIBRARY));
  fs.writeFileSync(path.join(directory, 'package.json'), `${JSON.stringify(manifest(platform), null, 2)}\n`);
  const { name } = platform;
  fs.writeFileSync(path.join(directory, 'README.md'), `# ${name}\n\nThe extension of \`onewrite\`. Install that package.\n`);
  for (const license of ['LICENSE-APACHE', 'LICENSE-MIT']) {
    fs.copyFileSync(path.join(__dirname, '../..', license), path.join(directory, license));
  }
}

const [target, library, directory] = process.argv.slice(2);
const platform = PLATFORMS.find((known) => known.target === target);
if (!platform || !library || !directory) {
  fail(`usage: node platform-package.js ${PLATFORMS.map((known) => known.target).join('|')} LIBRARY DIRECTORY`);
}
checkElf(platform, library);
write(platform, library, directory);
