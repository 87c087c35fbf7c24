// Writes the directory of a platform package, for `npm pack`:
//
//     node platform-package.js TARGET LIBRARY DIRECTORY
//
// TARGET is one of scripts/release: x86_64, aarch64 or armv7. LIBRARY is the extension for it.
'use strict';

const fs = require('fs');
const path = require('path');
const { LIBRARY, PLATFORMS } = require('./lib/platforms');
const main = require('./package.json');

function manifest({ target, name, cpu }) {
  return {
    name,
    version: main.version,
    description: `The SQLite extension onewrite, for Linux on ${target} with glibc 2.17 or later`,
    license: main.license,
    os: ['linux'],
    cpu: [cpu],
    libc: ['glibc'],
    files: [LIBRARY],
    preferUnplugged: true,
  };
}

/** Fails unless the library is for this machine: ELF's class (1: 32 bits, 2: 64 bits) and machine. */
function checkElf({ target, elf }, library) {
  const head = fs.readFileSync(library).subarray(0, 20);
  const isElf = head.length === 20 && head.toString('latin1', 0, 4) === '\x7fELF';
  const found = isElf ? { class: head[4], machine: head.readUInt16LE(18) } : {};
  if (found.class !== elf.class || found.machine !== elf.machine) fail(`${library} is no library for ${target}`);
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
