//! The `onewrite` command.

fn main() {}
