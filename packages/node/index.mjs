import onewrite from './index.js';

export const { MODES, OneWriteError, check, getLoadablePath, load, open, uri } = onewrite;
export default onewrite;
