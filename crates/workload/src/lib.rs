//! The built-in workloads.
