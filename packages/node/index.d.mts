import * as onewrite from './index.js';

export * from './index.js';
export default onewrite;
