// The platform packages: one for each target of scripts/release.
'use strict';

const LIBRARY = 'libonewrite.so';

const X64 = { cpu: 'x64', elf: { class: 2, machine: 62 } };
const ARM64 = { cpu: 'arm64', elf: { class: 2, machine: 183 } };
const ARM = { cpu: 'arm', elf: { class: 1, machine: 40 } };

const PLATFORMS = [
  { target: 'x86_64', name: '@onewrite/linux-x64-gnu', ...X64, libc: 'glibc' },
  { target: 'aarch64', name: '@onewrite/linux-arm64-gnu', ...ARM64, libc: 'glibc' },
  { target: 'armv7', name: '@onewrite/linux-arm-gnueabihf', ...ARM, libc: 'glibc' },
  { target: 'x86_64-musl', name: '@onewrite/linux-x64-musl', ...X64, libc: 'musl' },
  { target: 'aarch64-musl', name: '@onewrite/linux-arm64-musl', ...ARM64, libc: 'musl' },
  { target: 'armv7-musl', name: '@onewrite/linux-arm-musleabihf', ...ARM, libc: 'musl' },
];

/** The C library of this process, in npm's words. */
function libcHere() {
  return process.report.getReport().header.glibcVersionRuntime ? 'glibc' : 'musl';
}

module.exports = { LIBRARY, PLATFORMS, libcHere };
