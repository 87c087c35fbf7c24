// The platform packages: one for each target of scripts/release.
'use strict';

const LIBRARY = 'libonewrite.so';

const PLATFORMS = [
  { target: 'x86_64', name: '@onewrite/linux-x64-gnu', cpu: 'x64', elf: { class: 2, machine: 62 } },
  { target: 'aarch64', name: '@onewrite/linux-arm64-gnu', cpu: 'arm64', elf: { class: 2, machine: 183 } },
  { target: 'armv7', name: '@onewrite/linux-arm-gnueabihf', cpu: 'arm', elf: { class: 1, machine: 40 } },
];

module.exports = { LIBRARY, PLATFORMS };
