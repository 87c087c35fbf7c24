//! Processes that are killed.

fn main() {}
