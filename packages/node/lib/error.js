'use strict';

const ONLY_LINUX = 'onewrite runs on Linux only';

/** onewrite is not in use as it was asked for. The message has the reason. */
class OneWriteError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = 'OneWriteError';
    this.code = 'ERR_ONEWRITE';
  }
}

function isSupported() {
  return process.platform === 'linux';
}

module.exports = { ONLY_LINUX, OneWriteError, isSupported };
