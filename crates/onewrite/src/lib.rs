//! onewrite: journal modes for stock SQLite that make a commit durable in one device write.

pub mod storage;
