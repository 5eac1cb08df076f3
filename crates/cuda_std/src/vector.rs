//! Vector loads and stores.
