//! Block traces that tell every device write apart.
