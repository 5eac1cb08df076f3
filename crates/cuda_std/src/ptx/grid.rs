//! Barriers across the grid.
