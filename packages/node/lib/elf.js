// Why a file cannot be the extension of this process. The system's loader ends the program at a library
// that is cut short, and says "No such file" of one for another machine.
'use strict';

const fs = require('fs');
const { libcHere } = require('./platforms');

const HEADER = 64;
// `e_machine` of elf(5).
const MACHINES = { 3: 'x86', 40: 'ARM', 62: 'x86_64', 183: 'aarch64', 243: 'RISC-V' };

/** The reason, or undefined for a whole library of this machine. */
function whyNot(path) {
  const header = headerOf(path);
  if (!header) return 'it is no shared library';
  if (fs.statSync(path).size < sectionsEnd(header)) return 'it is cut short';
  const own = headerOf('/proc/self/exe') ?? header;
  if (machine(own) === machine(header)) return undefined;
  return `it is for ${machine(header)}, and this Node is for ${machine(own)}`;
}

/**
 * Why a library that the loader refused needs the other C library, or undefined. Its name is in the file:
 * musl's is libc.so.
 */
function whyOtherLibc(path) {
  const contents = fs.readFileSync(path);
  const own = libcHere();
  let needed = own;
  if (contents.includes('libc.so.6\0')) needed = 'glibc';
  else if (contents.includes('libc.so\0')) needed = 'musl';
  return needed === own ? undefined : `it is for ${needed}, and this program uses ${own}`;
}

function headerOf(path) {
  let file;
  try {
    file = fs.openSync(path);
    const header = Buffer.alloc(HEADER);
    const isWhole = fs.readSync(file, header, 0, HEADER, 0) === HEADER;
    return isWhole && header.toString('latin1', 0, 4) === '\x7fELF' ? header : undefined;
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) fs.closeSync(file);
  }
}

const has64Bits = (header) => header[4] === 2;

/** The end of the table of sections, which linkers write last. */
function sectionsEnd(header) {
  const start = has64Bits(header) ? Number(header.readBigUInt64LE(40)) : header.readUInt32LE(32);
  const sizes = has64Bits(header) ? 58 : 46;
  return start + header.readUInt16LE(sizes) * header.readUInt16LE(sizes + 2);
}

function machine(header) {
  const number = header.readUInt16LE(18);
  return `${MACHINES[number] ?? `machine ${number}`}, ${has64Bits(header) ? 64 : 32} bits`;
}

module.exports = { whyNot, whyOtherLibc };
